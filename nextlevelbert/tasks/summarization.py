"""``--task summarization``: BERT-AL learns which sentences of a document make up its summary.

Reported is the mean of the three evaluations with the lowest loss, as in the paper. Its baselines read a document at
once, without recurrence: ``truncated`` the first segment, ``extended`` all of it by a longer table of positions.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, TrainerCallback

from ..data.rows import fingerprint, hold_out
from ..evaluation.rouge import ROUGE, greedy_oracle, rouge_scores
from ..finetuning.arguments import (
    BertAlArguments,
    DataArguments,
    FinetuningArguments,
    LoraArguments,
    option,
    public_name,
)
from ..finetuning.lora import SavedAdapter, with_lora
from ..finetuning.seeds import Result, caveat, publish, report, run_seeds, training_facts
from ..models.bert_al_sentences import select_sentences
from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_bert_al import BertAlForExtractiveSummarization
from ..models.pretrained import load_backbone, load_tokenizer, usable_positions
from ..training.cards import CURVE, plain
from ..training.trainer import CardTrainer, parse, take_option, write_whole
from .summaries import SummarizedDocument, SummaryArguments, SummaryRows, SummarySet, read_summaries

_AVERAGED = 3  # evaluations, the paper's number
_SEGMENT_LENGTH = 128  # where none is given


@dataclass(kw_only=True)
class FirstSegmentArguments:
    """What the baselines have of a BERT-AL."""

    _argument_group_name = "model"
    segment_length: int | None = option(None, "Tokens of the first segment; by default 128.")


def with_extended_positions(name_or_path: str, learnt: int, total: int) -> BertAlForExtractiveSummarization:
    """A model that reads `total` tokens at once: after `learnt` rows, the table of positions is random (the paper's
    "Baseline-2").
    """
    source = BertAlForExtractiveSummarization.from_encoder(name_or_path, segment_length=learnt, recurrence="none")
    encoder, total = source.model.encoder, max(total, learnt)
    table = [name for name, _ in source.named_parameters() if name.endswith("position_embeddings.weight")]
    usable = usable_positions(encoder.config)
    if len(table) != 1 or usable is None:
        raise ValueError(f"--model {name_or_path} is a {encoder.config.model_type}, which has no table of positions.")
    unused = encoder.config.max_position_embeddings - usable  # RoBERTa's table starts after the padding id
    longer = {**encoder.config.to_dict(), "max_position_embeddings": total + unused}
    fields = {**source.config.to_dict(), "encoder_config": longer, "segment_length": total, "tokens_at_once": None}
    model = BertAlForExtractiveSummarization(type(source.config).from_dict(fields))
    weights = source.state_dict()
    rows = weights.pop(table[0])[: learnt + unused]
    model.load_state_dict(weights, strict=False)  # all but the table
    with torch.no_grad():
        model.get_parameter(table[0])[: len(rows)] = rows
    model.tokenizer = source.tokenizer
    return model.eval()


class LowestLosses(TrainerCallback):
    """Keeps the weights of the evaluations with the lowest loss, in ``best/step-N.safetensors``."""

    @staticmethod
    def path(folder: str | Path, step: int) -> Path:
        return Path(folder) / "best" / f"step-{step}.safetensors"

    @staticmethod
    def steps(log: Sequence[Mapping[str, float]]) -> dict[int, float]:
        losses = {int(entry["step"]): entry["eval_loss"] for entry in log if "eval_loss" in entry}
        losses = {step: loss for step, loss in losses.items() if math.isfinite(loss)}
        return {step: losses[step] for step in sorted(losses, key=lambda step: (losses[step], step))[:_AVERAGED]}

    def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        path = self.path(args.output_dir, state.global_step)
        if args.should_save and state.global_step in self.steps(state.log_history):
            path.parent.mkdir(exist_ok=True)
            save_file({name: weight.contiguous() for name, weight in model.state_dict().items()}, path)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Not before: a run that goes on from an earlier checkpoint needs the weights that were kept then.
        for path in (Path(args.output_dir) / "best").glob("*.safetensors") if args.should_save else ():
            if int(path.stem.removeprefix("step-")) not in self.steps(state.log_history):
                path.unlink()


def score_summaries(data: SummarySet, chosen: Sequence[Sequence[int]]) -> dict[str, float]:
    """ROUGE of summaries made of the sentences with these numbers, and the share of them that are labelled."""
    pairs = list(zip(data.documents, chosen, strict=True))
    texts = [[document.sentences[number] for number in numbers] for document, numbers in pairs]
    labels = [document.labels[number] for document, numbers in pairs for number in numbers]
    scores = rouge_scores(texts, [document.reference for document in data.documents])
    return {**scores, "precision": float(np.mean(labels)) if labels else 0.0}


def trivial_summaries(data: SummarySet, sentences: int) -> dict[str, dict[str, float]]:
    """What needs no model: the first sentences, and what a greedy search finds that knows the reference."""
    first = [list(range(min(sentences, len(document.spans)))) for document in data.documents]
    oracle = [greedy_oracle(document.sentences, document.reference, sentences) for document in data.documents]
    rows = {f"first {sentences} sentences": first, f"oracle, at most {sentences} sentences": oracle}
    return {name: score_summaries(data, chosen) for name, chosen in rows.items()}


def prediction(document: SummarizedDocument, chosen: list[int], logits: np.ndarray) -> str:
    """The chosen sentences, and a score for every sentence, as a line of JSON."""
    spans, texts = ([values[number] for number in chosen] for values in (document.spans, document.sentences))
    scores = [round(score, 6) for score in torch.tensor(logits).sigmoid().tolist()]
    record = {"id": document.id, "indices": chosen, "spans": spans, "sentences": texts, "scores": scores}
    return json.dumps(record, ensure_ascii=False)


def main(words: list[str]) -> None:
    kind, _ = take_option(words, "model_type", "bert-al")
    sizes_of_kind = (BertAlArguments, LoraArguments) if kind == "bert-al" else (FirstSegmentArguments,)
    classes = (SummaryArguments, DataArguments, FinetuningArguments, *sizes_of_kind)
    prog = f"run_finetune.py --task summarization --model_type {kind}"
    about = "Select the sentences of a summary. Each --model_type has its own options: bert-al, truncated, extended."
    options, places, args, sizes, *adapter = parse(classes, words, prog, about, recipes="summarization-")
    lora = adapter[0] if adapter and adapter[0].lora else None
    if args.learning_rate is None:
        args.learning_rate = 1e-3 if lora else 2e-5
    base = AutoConfig.from_pretrained(options.model)
    saved, recurrence = base.model_type == "bert-al", getattr(sizes, "recurrence", None)
    if saved and (recurrence or kind != "bert-al"):
        raise ValueError(f"--model {options.model} is a BERT-AL already: leave out --recurrence and --model_type.")
    if not saved and (lora or hasattr(base, "encoder_config")):
        needed = "--lora adapts a saved BERT-AL" if lora else "--model takes a BERT, or a saved BERT-AL"
        raise ValueError(f"{needed}, and {options.model} is a {base.model_type}.")

    # 1. The sets, and how a new model is made.
    sets = places.read_sets(
        lambda name, source, split: read_summaries(options, source, split, places.dataset_config_name),
        lambda data, share: hold_out(data, "documents", share, args.seed),
    )
    reported = "test" if "test" in sets else "validation"
    learnt = sizes.segment_length or _SEGMENT_LENGTH
    limits: dict[str, int | None] = dict.fromkeys(sets, learnt if kind == "truncated" else None)
    if kind == "bert-al":
        limits["train"] = sizes.max_training_tokens or getattr(base, "max_training_tokens", None)
    tokenizer = load_tokenizer(options.model)
    rows = {name: SummaryRows(data, tokenizer, limits[name]) for name, data in sets.items()}
    longest = max(len(row["document"][0]) for dataset in rows.values() for row in dataset.rows)

    def new_model() -> BertAlForExtractiveSummarization:
        length = {} if sizes.segment_length is None else {"segment_length": sizes.segment_length}
        if kind == "extended":
            model = with_extended_positions(options.model, learnt, longest)
        elif saved:
            model = BertAlForExtractiveSummarization.from_pretrained(options.model, dtype=torch.float32, **length)
        else:
            length["recurrence"] = (recurrence or "residual") if kind == "bert-al" else "none"
            model = BertAlForExtractiveSummarization.from_encoder(options.model, **length)
        model.config.max_training_tokens = None  # the rows are cut
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return model

    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        model, train = with_lora(new_model(), lora) if lora else new_model(), rows["train"]
        return CardTrainer(model, seed_args, train.collate, train, rows["validation"], callbacks=[LowestLosses()])

    # 2. A training per seed; its scores are means over the evaluations with the lowest loss.
    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        losses = LowestLosses.steps(trainer.state.log_history)
        if not losses:
            raise ValueError("No evaluation has a finite validation loss; lower --learning_rate.")
        trainer.accelerator.wait_for_everyone()  # until the weights are written
        scores: dict[str, dict[str, float]] = {}
        for number, (step, loss) in reversed(list(enumerate(losses.items(), 1))):  # the best last, which stays loaded
            trainer.accelerator.unwrap_model(trainer.model).load_state_dict(load_file(LowestLosses.path(folder, step)))
            padded = trainer.predict(rows[reported]).predictions  # [documents, S]
            logits = [line[: len(row["labels"])] for line, row in zip(padded, rows[reported].rows, strict=True)]
            blocked = [doc.sentences if options.trigram_blocking else None for doc in sets[reported].documents]
            chosen = list(map(select_sentences, logits, [options.summary_sentences] * len(logits), blocked))
            scores[f"evaluation {number}"] = {"step": step, "loss": loss, **score_summaries(sets[reported], chosen)}
        trainer.save_model(str(folder))
        if trainer.args.should_save:
            lines = map(prediction, sets[reported].documents, chosen, logits)
            write_whole(folder / f"{reported}_predictions.jsonl", "\n".join(lines))
        means = {name: float(np.mean([one[name] for one in scores.values()])) for name in (*ROUGE, "precision")}
        scores["validation"] = {"loss": min(losses.values())}
        return {**scores, reported: scores.get(reported, {}) | means}, {}

    weights = weights_fingerprint(new_model() if saved else load_backbone(options.model))
    settings = {
        "task": "summarization", "weights": weights, **vars(options), **vars(sizes), **vars(lora or LoraArguments()),
        "model": public_name(options.model), **args.signature(),
        **{f"{name}_sha256": fingerprint(map(astuple, data.documents)) for name, data in sets.items()},
    }  # fmt: skip
    results = run_seeds(args, settings, make_trainer, score)
    if not args.should_save:
        return
    for result in results:
        shutil.rmtree(Path(str(args.output_dir)) / f"seed-{result.seed}" / "best", ignore_errors=True)

    # 3. The table, and the model of the best seed with its card.
    trivial = trivial_summaries(sets[reported], options.summary_sentences)
    best, table = report(args, results, reported, f"{public_name(options.model)} ({kind})", trivial)
    if kind != "bert-al":
        publish(args, best, None, {})  # a baseline: its predictions alone
        return
    hub = None if Path(options.model).exists() else options.model
    adapted = partial(SavedAdapter, tokenizer=tokenizer, base=hub) if lora else None
    facts = card(args.repository(), options, sets, reported, best, bool(lora), hub)
    facts["training"] = {**training_facts(args, best, public_name(options.model)), **facts["training"]}
    facts["measured"] += f"{caveat(reported, 'the evaluation')}\n\n{table}"
    publish(args, best, adapted or BertAlForExtractiveSummarization.from_pretrained, facts)


_SNIPPET = """from nextlevelbert import BertAlForExtractiveSummarization

{opened}
summary = str(model.summarize("the text of a whole document", {rule}))"""
_WHOLE = 'model = BertAlForExtractiveSummarization.from_pretrained("{name}")'
_ADAPTER = """from peft import PeftModel

base = BertAlForExtractiveSummarization.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, "{name}").get_base_model()"""


def card(
    name: str, options: SummaryArguments, sets: Mapping[str, SummarySet], reported: str, best: Result, adapter: bool,
    hub: str | None,
) -> dict[str, Any]:  # fmt: skip
    """What the model card says of the model and its summaries; arguments of `model_card`."""
    scores, source = best.scores["evaluation 1"], sets[reported].source
    averaged = sum(key.startswith("evaluation") for key in best.scores)
    rule = f"sentences={options.summary_sentences}" + ", trigram_blocking=True" * options.trigram_blocking
    base, opened = hub or "the checkpoint that it started from", _ADAPTER if adapter else _WHOLE
    labels = "came with the data" if sets["train"].labelled else "are the greedy ROUGE oracle's"
    counts = ", ".join(f"{len(data.documents):,} documents ({part})" for part, data in sets.items())
    return {
        "name": name, "pipeline_tag": "summarization", "adapter": adapter, "base_model": hub, "dataset": source,
        "tags": ["bert-al", "long-documents", "extractive-summarization"],
        "training": {"summaries": rule}, "training_note": f"Sentence labels {labels}: {counts}.",
        "summary": "A BERT-AL that picks the sentences of a document, of any length, which make up its summary.",
        "snippet": _SNIPPET.format(opened=opened.format(name=name, base=base), rule=rule),
        "pictures": {CURVE: "Loss over epochs"},
        "measured": f"Summaries of {plain(source)} by `summarize(..., {rule})`: F1 of ROUGE with stemming, rougeL on "
        "the summary as a whole, and precision, the share of chosen sentences that are labelled. The first row is the "
        f"mean of the {averaged} evaluation(s) with the lowest validation loss; this checkpoint is the lowest of them "
        f"({', '.join(f'{metric} {scores[metric]:.3f}' for metric in ROUGE)}).",
        "limits": [
            "Whole sentences are copied, so a pronoun may lose what it refers to.",
            "Information flows forward only: a sentence is scored without knowledge of later segments.",
            "It has learnt what belongs in summaries of one kind of text.",
        ],
        "scores": {metric: scores[metric] for metric in ROUGE},
    }  # fmt: skip
