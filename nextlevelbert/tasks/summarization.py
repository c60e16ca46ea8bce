"""``--task summarization``: BERT-AL learns which sentences of a document make up its summary.

Reported is the mean of the three evaluations with the lowest loss, as in the paper. Its baselines
read a document at once, without recurrence: ``truncated`` the first segment, ``extended`` all of it
by a longer table of positions.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.special import expit
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import AutoConfig, TrainerCallback

from ..data.rows import Place, fingerprint, open_rows
from ..encoders import load_backbone
from ..evaluation.rouge import ROUGE, greedy_oracle, rouge_scores
from ..finetuning import seeds
from ..finetuning.models import BertAlArguments, TextModelArguments, hub_name, public_name
from ..finetuning.seeds import DataArguments, FinetuningArguments, option
from ..models.bert_al_sentences import encode_sentences, pad_batch, select_sentences, split_document
from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_bert_al import BertAlForExtractiveSummarization
from ..models.pretrained import load_tokenizer, usable_positions
from ..training.trainer import CURVE, CardTrainer, parse, take_option, write_whole

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class SummaryArguments(TextModelArguments):
    """Which model, which columns, and what a summary is."""

    model_type: str = option(
        "bert-al",
        "truncated reads only the first segment; extended has more positions, random after that"
        " segment.",
        choices=["bert-al", "truncated", "extended"],
    )
    text_column: str = option("text", "Column of the documents, texts or lists of sentences.")
    summary_column: str = option(
        "summary", "Column of the reference summaries, texts or lists of sentences."
    )
    label_column: str | None = option(
        None, "Column of lists of 0 and 1, one per sentence; else ROUGE labels them."
    )
    id_column: str = option("id", "Column of row ids.")
    summary_sentences: int = option(3, "Sentences per summary.")
    trigram_blocking: bool = option(False, "Skip sentences that share a trigram with a better one.")

    def __post_init__(self) -> None:
        if self.summary_sentences < 1:
            raise ValueError(
                f"--summary_sentences must be 1 or more, got {self.summary_sentences}."
            )


@dataclass(kw_only=True)
class FirstSegmentArguments:
    """What the baselines have of a BERT-AL."""

    _argument_group_name = "model"
    segment_length: int | None = option(None, "Tokens of the first segment; by default 128.")


class SummarizedDocument(NamedTuple):
    """A document, its reference summary, and a label of each of its sentences: 1 for one of the
    summary."""

    id: str
    sentences: list[str]
    reference: list[str]
    labels: list[int]


def read_summaries(
    options: SummaryArguments, source: str, split: str, config: str | None = None
) -> list[SummarizedDocument]:
    """Reads documents with reference summaries: from named columns, or CNN/DailyMail as the Hub has
    it."""
    name, first, rows, _ = open_rows(source, split, config)
    columns = [options.text_column, options.summary_column]
    if columns == ["text", "summary"] and {"article", "highlights"} <= first.keys():
        columns = ["article", "highlights"]
    documents, foreign = [], 0
    for index, (place, values) in enumerate(
        tqdm(rows, unit="text", desc=f"sentences of {name}", delay=2)
    ):
        sentences = sentences_of(place, values, columns[0], "--text_column")
        reference = sentences_of(place, values, columns[1], "--summary_column", by_line=True)
        if column := options.label_column:
            labels = place.value(values, column, "--label_column")
            if (
                not isinstance(labels, list)
                or len(labels) != len(sentences)
                or not set(labels) <= {0, 1}
            ):
                raise place.error(
                    column, f"must be a list of {len(sentences)} labels, 0 or 1, one per sentence."
                )
        else:
            chosen = greedy_oracle(sentences, reference)
            labels = [int(number in chosen) for number in range(len(sentences))]
            foreign += not chosen
        documents.append(
            SummarizedDocument(
                str(values.get(options.id_column, index)), sentences, reference, labels
            )
        )
    if foreign:
        message = (
            f"{name}: {foreign} of {len(documents)} documents share no word with their summary."
        )
        if foreign == len(documents):
            raise ValueError(f"{message} Give sentence labels with --label_column.")
        logger.warning(message)
    return documents


def sentences_of(
    place: Place, values: Mapping[str, Any], column: str, option: str, by_line: bool = False
) -> list[str]:
    """The sentences of a text or list of sentences; those of a text of several lines are its lines,
    `by_line`."""
    value = place.value(values, column, option)
    lines = (
        [line for line in value.splitlines() if line.strip()]
        if by_line and isinstance(value, str)
        else []
    )
    try:
        text, spans = split_document(lines if len(lines) > 1 else value)
    except ValueError as error:
        raise place.error(column, str(error)) from error
    return [text[start:end] for start, end in spans]


def tokenized(
    documents: Sequence[SummarizedDocument], tokenizer: Any, limit: int | None
) -> list[dict[str, Any]]:
    """Documents in BERTSUM's format, cut to `limit` tokens; sentences whose [CLS] is past the cut
    have no label."""
    rows, lost = [], []
    for document in tqdm(documents, unit="text", desc="tokenising", delay=2):
        ids, types = encode_sentences(document.sentences, tokenizer)
        lost.append(max(0, len(ids) - limit) if limit else 0)
        labels = torch.tensor(document.labels[: int((ids[:limit] == tokenizer.cls_token_id).sum())])
        rows.append({"labels": labels, "document": (ids[:limit], types[:limit])})
    if any(lost):
        logger.warning(
            "%d of %d documents lose %d tokens.", np.count_nonzero(lost), len(lost), sum(lost)
        )
    return rows


def collate(rows: Sequence[dict[str, Any]], padding: int) -> dict[str, torch.Tensor]:
    """`labels` ``[B, S]``, -100 after the last sentence, and what `pad_batch` gives."""
    labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
    return {"labels": labels, **pad_batch([row["document"] for row in rows], padding)}


def with_extended_positions(
    name_or_path: str, learnt: int, total: int
) -> BertAlForExtractiveSummarization:
    """A model that reads `total` tokens at once; positions after `learnt` are random (the paper's
    "Baseline-2")."""
    source = BertAlForExtractiveSummarization.from_encoder(
        name_or_path, segment_length=learnt, recurrence="none"
    )
    encoder, total = source.model.encoder, max(total, learnt)
    table = [
        name for name, _ in source.named_parameters() if name.endswith("position_embeddings.weight")
    ]
    usable = usable_positions(encoder.config)
    if len(table) != 1 or usable is None:
        raise ValueError(
            f"--model {name_or_path} is a {encoder.config.model_type}, which has no table of"
            " positions."
        )
    unused = (
        encoder.config.max_position_embeddings - usable
    )  # RoBERTa's table starts after the padding id
    longer = {**encoder.config.to_dict(), "max_position_embeddings": total + unused}
    fields = {
        **source.config.to_dict(),
        "encoder_config": longer,
        "segment_length": total,
        "tokens_at_once": None,
    }
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
        losses = [(entry["eval_loss"], int(entry["step"])) for entry in log if "eval_loss" in entry]
        ranked = sorted((loss, step) for loss, step in losses if math.isfinite(loss))
        return {step: loss for loss, step in ranked[:3]}  # the paper's number

    def on_evaluate(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        path = self.path(args.output_dir, state.global_step)
        if args.should_save and state.global_step in self.steps(state.log_history):
            path.parent.mkdir(exist_ok=True)
            save_file(
                {name: weight.contiguous() for name, weight in model.state_dict().items()}, path
            )

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Not before: a run that goes on from an earlier checkpoint needs the weights that were kept
        # then.
        for path in (
            (Path(args.output_dir) / "best").glob("*.safetensors") if args.should_save else ()
        ):
            if int(path.stem.removeprefix("step-")) not in self.steps(state.log_history):
                path.unlink()


def score_summaries(
    documents: Sequence[SummarizedDocument], chosen: Sequence[Sequence[int]]
) -> dict[str, float]:
    """ROUGE of summaries made of the sentences with these numbers, and the share of them that are
    labelled."""
    pairs = list(zip(documents, chosen, strict=True))
    texts = [[document.sentences[number] for number in numbers] for document, numbers in pairs]
    labels = [document.labels[number] for document, numbers in pairs for number in numbers]
    scores = rouge_scores(texts, [document.reference for document in documents])
    return {**scores, "precision": float(np.mean(labels)) if labels else 0.0}


def trivial_summaries(
    documents: Sequence[SummarizedDocument], sentences: int
) -> dict[str, dict[str, float]]:
    """What needs no model: the first sentences, and what a greedy search finds that knows the
    reference."""
    first = [list(range(min(sentences, len(document.sentences)))) for document in documents]
    oracle = [
        greedy_oracle(document.sentences, document.reference, sentences) for document in documents
    ]
    rows = {f"first {sentences} sentences": first, f"oracle, at most {sentences} sentences": oracle}
    return {name: score_summaries(documents, chosen) for name, chosen in rows.items()}


def record(document: SummarizedDocument, chosen: list[int], logits: np.ndarray) -> str:
    """The chosen sentences, and a score for every sentence, as a line of JSON."""
    texts, scores = (
        [document.sentences[number] for number in chosen],
        expit(logits.astype(float)).round(6).tolist(),
    )
    return json.dumps(
        {"id": document.id, "indices": chosen, "sentences": texts, "scores": scores},
        ensure_ascii=False,
    )


_SNIPPET = """from nextlevelbert import BertAlForExtractiveSummarization

model = BertAlForExtractiveSummarization.from_pretrained("{name}")
summary = str(model.summarize("the text of a whole document", {rule}))"""


def main(words: list[str]) -> None:
    kind, _ = take_option(words, "model_type", "bert-al")
    kind_arguments = BertAlArguments if kind == "bert-al" else FirstSegmentArguments
    classes = (SummaryArguments, DataArguments, FinetuningArguments, kind_arguments)
    prog = f"--task summarization --model_type {kind}"
    about = (
        "Selects the sentences of a summary. Each --model_type has its own options: bert-al,"
        " truncated, extended."
    )
    options, places, args, sizes = parse(classes, words, prog, about, recipes="summarization-")
    args.learning_rate = 2e-5 if args.learning_rate is None else args.learning_rate
    base = AutoConfig.from_pretrained(options.model)
    saved, recurrence = base.model_type == "bert-al", getattr(sizes, "recurrence", None)
    if saved and (recurrence or kind != "bert-al"):
        raise ValueError(
            f"--model {options.model} is a BERT-AL already: leave out --recurrence and"
            " --model_type."
        )
    if not saved and hasattr(base, "encoder_config"):
        raise ValueError(
            f"--model takes a BERT, or a saved BERT-AL, and {options.model} is a {base.model_type}."
        )

    if kind != "bert-al" and args.push_to_hub:
        raise ValueError(
            f"--model_type {kind} is a baseline, which is not published; leave out --push_to_hub."
        )

    # 1. The sets, and how a new model is made.
    config = places.dataset_config_name
    sets = places.read_sets(
        lambda name, source, split: read_summaries(options, source, split, config), args.seed
    )
    reported = "test" if "test" in sets else "validation"
    documents = sets[reported]
    learnt = sizes.segment_length or 128
    limits: dict[str, int | None] = dict.fromkeys(sets, learnt if kind == "truncated" else None)
    if kind == "bert-al":
        limits["train"] = sizes.max_training_tokens or getattr(base, "max_training_tokens", None)
    tokenizer = load_tokenizer(options.model)
    rows = {name: tokenized(data, tokenizer, limits[name]) for name, data in sets.items()}
    longest = max(len(row["document"][0]) for rows_of_set in rows.values() for row in rows_of_set)

    def new_model() -> BertAlForExtractiveSummarization:
        length: dict[str, Any] = (
            {} if sizes.segment_length is None else {"segment_length": sizes.segment_length}
        )
        if kind == "extended":
            model = with_extended_positions(options.model, learnt, longest)
        elif saved:
            model = BertAlForExtractiveSummarization.from_pretrained(
                options.model, dtype=torch.float32, **length
            )
        else:
            length["recurrence"] = (recurrence or "residual") if kind == "bert-al" else "none"
            model = BertAlForExtractiveSummarization.from_encoder(options.model, **length)
        model.config.max_training_tokens = None  # the rows are cut
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return model

    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        collator, sides = (
            partial(collate, padding=tokenizer.pad_token_id or 0),
            (rows["train"], rows["validation"]),
        )
        return CardTrainer(new_model(), seed_args, collator, *sides, callbacks=[LowestLosses()])

    # 2. A training per seed; its scores are means over the evaluations with the lowest loss.
    def score(
        trainer: CardTrainer, folder: Path
    ) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        losses = LowestLosses.steps(trainer.state.log_history)
        if not losses:
            raise ValueError("No evaluation has a finite validation loss; lower --learning_rate.")
        trainer.accelerator.wait_for_everyone()  # until the weights are written
        scores: dict[str, dict[str, float]] = {}
        for number, (step, loss) in reversed(
            list(enumerate(losses.items(), 1))
        ):  # the best last, which stays loaded
            trainer.accelerator.unwrap_model(trainer.model).load_state_dict(
                load_file(LowestLosses.path(folder, step))
            )
            padded = trainer.predict(rows[reported]).predictions  # [documents, S]
            logits = [
                line[: len(row["labels"])] for line, row in zip(padded, rows[reported], strict=True)
            ]
            chosen = [
                select_sentences(
                    line,
                    options.summary_sentences,
                    one.sentences if options.trigram_blocking else None,
                )
                for line, one in zip(logits, documents, strict=True)
            ]
            scores[f"evaluation {number}"] = {
                "step": step,
                "loss": loss,
                **score_summaries(documents, chosen),
            }
        trainer.save_model(str(folder))
        if trainer.args.should_save:
            write_whole(
                folder / f"{reported}_predictions.jsonl",
                "\n".join(map(record, documents, chosen, logits)),
            )
        means = {
            name: float(np.mean([one[name] for one in scores.values()]))
            for name in (*ROUGE, "precision")
        }
        scores["validation"] = {"loss": min(losses.values())}
        return {**scores, reported: scores.get(reported, {}) | means}, {}

    weights = weights_fingerprint(new_model() if saved else load_backbone(options.model))
    settings = {
        "task": "summarization",
        "weights": weights,
        **vars(options),
        **vars(sizes),
        "model": public_name(options.model),
        **args.signature(),
        **{f"{name} set": fingerprint(data) for name, data in sets.items()},
    }
    results = seeds.run_seeds(args, settings, make_trainer, score)
    if not args.should_save:
        return
    for result in results:
        shutil.rmtree(
            Path(str(args.output_dir)) / f"seed-{result.seed}" / "best", ignore_errors=True
        )

    # 3. The table, and the model of the best seed with its card.
    trivial = trivial_summaries(documents, options.summary_sentences)
    best, table = seeds.report(
        args, results, reported, f"{public_name(options.model)} ({kind})", trivial
    )
    if kind != "bert-al":
        seeds.publish(args, best, None, {})  # a baseline: its predictions alone
        return
    name, hub = args.repository(), hub_name(options.model)
    rule = (
        f"sentences={options.summary_sentences}"
        + ", trigram_blocking=True" * options.trigram_blocking
    )
    facts = {
        "summaries": rule,
        "sentence labels": options.label_column or "of the greedy ROUGE oracle",
    }
    facts |= {f"{part} set": f"{len(data)} documents" for part, data in sets.items()}
    card = {
        "name": name,
        "pipeline_tag": "summarization",
        "base_model": hub,
        "dataset": reported,
        "tags": ["bert-al", "long-documents", "extractive-summarization"],
        "training": {**seeds.training_facts(args, best, public_name(options.model)), **facts},
        "summary": (
            "A BERT-AL that picks the sentences of a document, of any length, which make up its"
            " summary."
        ),
        "snippet": _SNIPPET.format(name=name, rule=rule),
        "pictures": {CURVE: "Loss over epochs"},
        "measured": (
            f"The {reported} set, by `summarize(..., {rule})`: F1 of ROUGE (words of a to z are"
            " stemmed), rougeL on the summary as a whole, and precision, the share of chosen"
            " sentences with a label. The first row is the mean of the evaluations with the lowest"
            " validation loss, at most three; this checkpoint is the best of them."
            f"{seeds.caveat(reported, 'the evaluation')}\n\n{table}"
        ),
        "limits": [
            "Whole sentences are copied, so a pronoun may lose what it refers to.",
            (
                "Information flows forward only: a sentence is scored without knowledge of later"
                " segments."
            ),
            "It has learnt what belongs in summaries of one kind of text.",
        ],
        "scores": {metric: best.scores["evaluation 1"][metric] for metric in ROUGE},
    }
    seeds.publish(args, best, BertAlForExtractiveSummarization.from_pretrained, card)
