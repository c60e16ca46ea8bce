"""``--task classification`` and ``--task multiple_choice``: documents, alone or with a question each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModelForMultipleChoice, AutoTokenizer, set_seed
from transformers import AutoModelForSequenceClassification as AutoClassifier

from ..data.labels import read_label_names
from ..data.rows import fingerprint
from ..finetuning import models, seeds
from ..finetuning.models import LoraArguments, SavedAdapter, hub_name, public_name, with_lora
from ..finetuning.seeds import DataArguments, FinetuningArguments, Result, option
from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_bert_al import BertAlForSequenceClassification
from ..models.modeling_chunkbert import ChunkBertForSequenceClassification
from ..models.pretrained import usable_positions
from ..training.cards import CONFUSION, CURVE, plain, plot_confusion
from ..training.trainer import CardTrainer, parse, take_option
from . import labelled_documents as labelled
from .baselines import MeanClassifier, tfidf
from .labelled_documents import ColumnArguments, Example, LabelledDocuments

logger = logging.getLogger(__name__)

Sets = dict[str, LabelledDocuments]
_PROBLEMS = ["single_label_classification", "multi_label_classification", "regression"]
_CHUNKS = "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as its vector."
_SMALL = "Small sets have wide margins; the deviation over seeds does not cover the choice of the set."
# What cards say of each --model_type.
_CARDS = {
    "nextlevelbert": ("[NextLevelBERT](https://arxiv.org/abs/2402.17682)", _CHUNKS),
    "hate": ("HATE (Hierarchical Attention-based Text Encoder)", _CHUNKS),
    "chunkbert": (
        "[ChunkBERT](https://arxiv.org/abs/2310.20558)",
        "Attention stays within a chunk; only convolutions a few tokens wide look across its borders.",
    ),
    "bert-al": ("BERT-AL", "Information flows forward only: a segment is read without knowledge of later ones."),
    "truncated": ("encoder", "Only the start of a document is read, as many tokens as the encoder has positions."),
}


# --- Options


@dataclass(kw_only=True)
class ClassArguments:
    """The kind of labels."""

    _argument_group_name = "classes"

    problem_type: str | None = option(None, "By default, inferred from the labels.", choices=_PROBLEMS)
    label_names_file: str | None = option(
        None, "JSON list of the classes, or object with them as keys; by default, those of the training set."
    )
    arrangement: str | None = option(
        None, "inverted: EURLEX-57K with the main body first. paired: every two rows joined (Paired Book Summary).",
        choices=["inverted", "paired"],
    )  # fmt: skip
    sigmoid: bool = option(
        False, "Tell two classes apart by one output above 0.5, as the NextLevelBERT paper on MuLD."
    )


@dataclass(kw_only=True)
class ChoiceArguments:
    """Candidate answers."""

    _argument_group_name = "data"

    candidates_column: str = option("choices", "Column of the lists of candidate answers.")


# The options of each --model_type, and the class of those that are trained from text.
_OVER_VECTORS = (models.VectorModelArguments, LoraArguments)
KINDS: dict[str, tuple[type, ...]] = {
    "nextlevelbert": _OVER_VECTORS,
    "hate": _OVER_VECTORS,
    "chunkbert": (models.TextModelArguments, models.ChunkBertArguments),
    "bert-al": (models.TextModelArguments, models.BertAlArguments),
    "truncated": (models.TextModelArguments,),
}
TEXT_MODELS: dict[str, Any] = {
    "chunkbert": ChunkBertForSequenceClassification,
    "bert-al": BertAlForSequenceClassification,
    "truncated": AutoClassifier,
}
# Options without influence on the result, or told otherwise.
_UNSIGNED = ("model", "cache_dir", "chunk_batch_size", "chunk_encoder", "label_names_file")


# --- Sets


def read_sets(columns: ColumnArguments, labels: Any, data: DataArguments, seed: int) -> Sets:
    """The sets, checked; all have the classes and the kind of labels of the training set."""
    if columns.halve_validation and (data.place("validation") is None or data.place("test") is not None):
        raise ValueError("--halve_validation makes half of a validation set the test set: give that set alone.")
    known: Any = None  # names of classes and kind of problem

    def read(name: str, source: str, split: str) -> LabelledDocuments:
        nonlocal known
        if isinstance(labels, ChoiceArguments):
            table = labelled.choice_table(source, split, data.dataset_config_name)
            return labelled.read_choices(table, columns, labels.candidates_column)
        table = labelled.classification_table(source, split, data.dataset_config_name, labels.arrangement)
        known = known or (read_label_names(labels.label_names_file), labels.problem_type)
        part = labelled.read_classes(table, columns, *known)
        known = (part.label_names, part.problem_type)
        return part

    sets = data.read_sets(read, lambda train, share: labelled.hold_out_documents(train, share, seed))
    if columns.halve_validation:
        sets["validation"], sets["test"] = labelled.halve_by_document(sets["validation"])
    train, learned = sets["train"], set(sets["train"].documents())
    for name, part in sets.items():
        logger.info("%s: %d examples, %d documents (%s)", name, len(part.examples), len(part.documents()), part.source)
        if name != "test" and not part.labelled:
            raise ValueError(f"The {name} set has no labels ({part.source}); give one with labels.")
        if name != "train" and (shared := len(learned.intersection(part.documents()))):
            logger.warning("%d texts of the %s set are in the training set, too.", shared, name)
    classes = len(train.label_names or ())
    if train.problem_type == _PROBLEMS[0] and classes == 1:
        raise ValueError(f"{train.source} has one class only; give rows of two, or --label_names_file.")
    if isinstance(labels, ClassArguments) and labels.sigmoid and (classes, train.problem_type) != (2, _PROBLEMS[0]):
        raise ValueError(f"--sigmoid is for two classes, and {train.source} has other labels; leave it out.")
    return sets


# --- Batches


def collate_vectors(
    data: LabelledDocuments, vectors: Mapping[str, torch.Tensor], sigmoid: bool, rows: list[Example]
) -> dict[str, torch.Tensor]:
    """N examples over B distinct documents, each of which a model over chunk vectors reads once.

    What is asked about a document is the mean of its chunk vectors: ``[N, D]``, or ``[N, C, D]`` for choices.
    """
    place = {text: number for number, text in enumerate(dict.fromkeys(row.text for row in rows))}
    # A tensor with a row per example comes first: `Trainer` takes its length for the batch size.
    batch = {"document_index": torch.tensor([place[row.text] for row in rows])} | targets(data, sigmoid, rows)
    if rows[0].asked:
        pairs = [torch.stack([vectors[text].float().mean(dim=0) for text in row.asked]) for row in rows]
        batch["pair_embeds"] = torch.stack([pair if rows[0].choices else pair[0] for pair in pairs])
    return batch | padded("inputs_embeds", [vectors[text].float() for text in place])


def collate_tokens(
    data: LabelledDocuments, pad: int, sigmoid: bool, rows: list[tuple[Example, torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """N examples with their token ids, padded on the right: ``input_ids`` and ``attention_mask`` ``[N, T]``."""
    examples, ids = map(list, zip(*rows, strict=True))
    return padded("input_ids", ids, pad) | targets(data, sigmoid, examples)


def padded(name: str, rows: list[torch.Tensor], pad: int = 0) -> dict[str, torch.Tensor]:
    """Rows of one length, filled up on the right, and the ``attention_mask`` of what is theirs."""
    mask = pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], batch_first=True)
    return {name: pad_sequence(rows, batch_first=True, padding_value=pad), "attention_mask": mask}


def targets(data: LabelledDocuments, sigmoid: bool, rows: list[Example]) -> dict[str, torch.Tensor]:
    """``labels`` of some rows as the losses want them, where there are any; with `sigmoid`, one of two classes."""
    if rows[0].label is None:
        return {}
    labels = torch.from_numpy(replace(data, examples=rows).labels())
    if sigmoid:
        return {"labels": labels[:, None].float()}
    return {"labels": labels if data.problem_type in (_PROBLEMS[0], "multiple_choice") else labels.float()}


def token_rows(
    data: LabelledDocuments, tokenizer: Any, limit: int | None, kind: str
) -> tuple[list[tuple[Example, torch.Tensor]], np.ndarray]:
    """Examples with the token ids of their documents, after their questions, cut to `limit`; and the lengths before.

    For a ``"truncated"`` encoder a cut document ends with the tokenizer's last special token.
    """
    texts = [row.text if row.question is None else f"{row.question}\n{row.text}" for row in data.examples]
    ids = tokenizer(texts, verbose=False)["input_ids"]
    lengths = np.array([len(row) for row in ids])
    if not all(lengths > tokenizer.num_special_tokens_to_add()):
        name = data.examples[int(lengths.argmin())].id
        raise ValueError(f"{data.source}: the document of {name!r} contains no token; leave the row out.")
    if limit is not None and (longer := int((lengths > limit).sum())):
        logger.warning("%s: the first %d tokens of documents are read; %d are longer.", data.source, limit, longer)
        tail = int(kind == "truncated")
        ids = [row[: limit - tail] + row[-1:] * tail if len(row) > limit else row for row in ids]
    return list(zip(data.examples, map(torch.tensor, ids), strict=True)), lengths


# --- Models


class Model(NamedTuple):
    """What all seeds share, whatever the kind of model."""

    kind: str
    rows: dict[str, list[Any]]  # the sets, as it reads them
    collate: Callable[[list[Any]], dict[str, torch.Tensor]]
    new: Callable[[], Any]  # at the start of a seed
    trained: Callable[[Path], Any] | None  # from the folder of a seed, to be published; None for a baseline
    weights: str  # hash of what a training starts from
    rate: float  # usual learning rate
    base: dict[str, Any] | None = None  # of an adapter: what opens its base, beside the name
    window: int | None = None  # most tokens that the encoder reads at once, where that says something
    lengths: Mapping[str, np.ndarray] = {}  # of documents in tokens, where there is a window


def over_vectors(args: Any, sets: Sets, config: dict[str, Any], sigmoid: bool, options: Any, part: Any) -> Model:
    """NextLevelBERT, HATE, or a baseline over the vectors of a frozen encoder, which are made once."""
    train, choice = sets["train"], sets["train"].problem_type == "multiple_choice"
    source = models.open_source(options, ("avg_sbert", "sbert") + ("tfidf",) * (not choice))
    baseline = options.model in ("avg_sbert", "sbert") or source.kind == "other"
    if part.lora and (baseline or part.freeze_encoder or options.model == "untrained"):
        raise ValueError("--lora is for a saved checkpoint, without --freeze_encoder.")
    if baseline and (part.freeze_encoder or args.push_to_hub):
        raise ValueError(f"--model {options.model} is a baseline, without --freeze_encoder and --push_to_hub.")
    auto = AutoModelForMultipleChoice if choice else AutoClassifier
    if not baseline and auto not in models.MODELS[source.kind]:
        raise ValueError(f"A {source.kind} has no head for multiple choice; give a NextLevelBERT with --model.")
    asked = [text for data in sets.values() for example in data.examples for text in example.asked]
    documents = [text for data in sets.values() for text in data.documents()]
    vectors = models.encode_once(options, args, source, documents + asked)
    if long := sum(len(vectors[text]) > 1 for text in set(asked)):
        logger.warning("%d questions are longer than a chunk; each is the mean of its chunk vectors.", long)
    outputs, size = 1 if choice else len(config["id2label"]), next(iter(vectors.values())).shape[1]
    head_options = {} if choice else {**config, "text_pair": bool(asked)}

    def new() -> Any:
        if baseline:
            return MeanClassifier(size, outputs, bool(asked), choice, config["problem_type"])
        model = models.open_model(options, source, auto, **head_options)
        if part.freeze_encoder:
            freeze(model.base_model)
        return with_lora(model, part) if part.lora else model

    trained: Any = None if baseline else partial(models.with_chunk_encoder, source, auto)
    if part.lora:
        trained = partial(SavedAdapter, tokenizer=source.encoder.tokenizer, base=hub_name(options.model))  # type: ignore[union-attr]
    rows = {name: data.examples for name, data in sets.items()}
    collate = partial(collate_vectors, train, vectors, sigmoid)
    rate = 1e-3 if baseline or part.freeze_encoder or part.lora else 5e-5
    base = {} if choice else {"num_labels": outputs, "text_pair": bool(asked)}
    return Model(source.kind, rows, collate, new, trained, source.weights, rate, base if part.lora else None)


def from_text(args: Any, sets: Sets, config: dict[str, Any], sigmoid: bool, options: Any, *parts: Any) -> Model:
    """ChunkBERT, BERT-AL, or (`truncated`) any encoder with a head on the start of each document, trained whole."""
    kind = options.model_type
    try:
        stored = AutoConfig.from_pretrained(options.model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(f"--model {options.model!r} is neither a folder with an encoder nor on the Hub.") from error
    if stored != kind and stored in KINDS:
        raise ValueError(f"--model is a {stored}; a {kind} is made of a plain encoder.")
    chosen = {key: value for part in parts for key, value in vars(part).items() if value is not None}
    model_class = TEXT_MODELS[kind]

    def new() -> Any:
        if kind in (stored, "truncated"):
            model = model_class.from_pretrained(options.model, ignore_mismatched_sizes=True, **config, **chosen)
        else:
            model = model_class.from_encoder(options.model, **config, **chosen)
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return model

    def trained(folder: Path) -> Any:
        tokenizer.save_pretrained(str(args.output_dir))
        return model_class.from_pretrained(folder)

    set_seed(args.seed)  # so that a random part is the same whenever it is hashed
    reader, tokenizer = new(), AutoTokenizer.from_pretrained(options.model)
    window = usable_positions(getattr(reader.config, "encoder_config", reader.config))
    limits = {"train": getattr(reader.config, "max_training_tokens", None)}  # the others are read whole
    if kind == "truncated":
        limits = dict.fromkeys(sets, min(window or tokenizer.model_max_length, tokenizer.model_max_length))
    read = {name: token_rows(data, tokenizer, limits.get(name), kind) for name, data in sets.items()}
    rows, lengths = {name: pair[0] for name, pair in read.items()}, {name: pair[1] for name, pair in read.items()}
    collate = partial(collate_tokens, sets["train"], tokenizer.pad_token_id or 0, sigmoid)
    return Model(kind, rows, collate, new, trained, weights_fingerprint(reader), 3e-5, None, window, lengths)


def freeze(encoder: nn.Module) -> None:
    """Leaves the encoder as it is while a head is trained, without dropout."""
    encoder.requires_grad_(False)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # its configuration is saved as it was


def head_config(train: LabelledDocuments, sigmoid: bool) -> dict[str, Any]:
    """Names of the outputs and kind of problem, as a configuration has them; a value is a single "class"."""
    if train.problem_type == "multiple_choice":
        return {"problem_type": _PROBLEMS[0]}
    names = dict(enumerate((train.label_names or ("value",))[1 if sigmoid else 0 :]))  # the second class alone
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    return {**labels, "problem_type": _PROBLEMS[1] if sigmoid else train.problem_type}


# --- The task


def main(words: list[str], task: str = "classification") -> None:
    """Classifies documents, or chooses among answers to questions about them; each --model_type has its options."""
    choice = task == "multiple_choice"
    kind = take_option(words, "model_type", "nextlevelbert")[0] or ""
    if kind not in (kinds := ["nextlevelbert"] if choice else [*KINDS]):
        raise ValueError(f"--task {task} takes --model_type {', '.join(kinds)}, not {kind!r}.")
    classes = (ColumnArguments, ChoiceArguments if choice else ClassArguments, DataArguments, FinetuningArguments)
    prog = f"--task {task} --model_type {kind}"
    *parts, columns, labels, data, args = parse((*KINDS[kind], *classes), words, prog, main.__doc__ or "", f"{task}-")

    # 1. The sets, and what all seeds share.
    sets = read_sets(columns, labels, data, args.seed)
    train, options, sigmoid = sets["train"], parts[0], not choice and labels.sigmoid
    if args.label_smoothing_factor and (sigmoid or train.problem_type != _PROBLEMS[0]):
        raise ValueError(f"--label_smoothing_factor is for single labels, not for {train.problem_type}.")
    if options.model == "tfidf" and not choice:
        result, folder = Result(0, {}), Path(args.output_dir) / "seed-0"
        for name, logits in tfidf(sets).items():
            result.scores |= scored(args, folder, name, sets[name], logits)
        return finish(args, [result], sets, "tfidf", None)
    prepare = over_vectors if kind in models.MODELS else from_text
    model = prepare(args, sets, head_config(train, sigmoid), sigmoid, *parts)
    args.learning_rate = model.rate if args.learning_rate is None else args.learning_rate

    def logits_of(outputs: Any) -> np.ndarray:
        """Logits ``[N, K]`` of K classes; one output z of two classes is 0 and z."""
        return np.concatenate([np.zeros_like(outputs), outputs], axis=1) if sigmoid else np.asarray(outputs)

    # 2. A training per seed.
    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        return CardTrainer(
            model=model.new(),
            args=seed_args,
            data_collator=model.collate,
            train_dataset=model.rows["train"],
            eval_dataset=model.rows["validation"],
            compute_metrics=lambda output: sets["validation"].scores(logits_of(output.predictions)),
        )

    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        scores: dict[str, dict[str, float]] = {}
        trainer.compute_metrics = None
        for name in [name for name in sets if name != "train"]:
            output = trainer.predict(model.rows[name])
            scores |= scored(args, folder, name, sets[name], logits_of(output.predictions), model)
            if name in scores:
                scores[name]["loss"] = output.metrics["test_loss"]
        return scores, {}

    settings = {key: value for part in (*parts, labels) for key, value in vars(part).items() if key not in _UNSIGNED}
    settings |= {"task": task, "model": public_name(options.model), "weights": model.weights, **args.signature()}
    contents = {name: [part.label_names, *map(vars, part.examples)] for name, part in sets.items()}
    settings |= {f"{name}_sha256": fingerprint(content) for name, content in contents.items()}
    results = seeds.run_seeds(args, settings, make_trainer, score)

    # 3. The table, the pictures, and the model of the best seed with its card.
    if args.should_save:
        finish(args, results, sets, options.model, model)


def choose(words: list[str]) -> None:
    """``--task multiple_choice``."""
    main(words, "multiple_choice")


def scored(
    args: FinetuningArguments, folder: Path, name: str, data: LabelledDocuments, logits: np.ndarray, model: Any = None
) -> dict[str, dict[str, float]]:
    """Writes predictions; the scores of a set, and (``"NAME, long"``) of what the encoder cannot read at once."""
    if args.should_save:
        folder.mkdir(parents=True, exist_ok=True)
        labelled.write_predictions(folder / f"{name}_predictions.jsonl", data, logits)
    if not data.labelled:
        return {}
    scores = {name: data.scores(logits)}
    if model and model.window and 0 < (long := model.lengths[name] > model.window).sum() < len(long):
        scores[f"{name}, long"] = data.scores(logits, long)
    return scores


def finish(args: FinetuningArguments, results: list[Result], sets: Sets, source: str, model: Model | None) -> None:
    """Prints and draws the results of all seeds, and publishes the model of the best with its card."""
    train, reported = sets["train"], "test" if "test" in sets and sets["test"].labelled else "validation"
    data, output = sets[reported], Path(str(args.output_dir))
    title = public_name(source) + (f" ({model.kind})" if model and model.window else "")
    trivial = "mean of the labels" if train.problem_type == "regression" else "most frequent label"
    rows: dict[str, Any] = {trivial: data.scores(train.trivial_logits().repeat(len(data.examples), axis=0))}
    if model and f"{reported}, long" in results[0].scores:
        lengths = model.lengths[reported]
        count = f"{(lengths > model.window).sum()} of {len(lengths)} documents over {model.window} tokens"
        long = seeds.mean_and_deviation([result.scores[f"{reported}, long"] for result in results])
        rows = {f"{title}, {reported}, long ({count})": long, **rows}
    best, table = seeds.report(args, results, reported, title, rows, "loss" if model else "accuracy", not model)
    if train.problem_type == "single_label_classification":
        files = [output / f"seed-{result.seed}" / f"{reported}_predictions.jsonl" for result in results]
        names = list(train.label_names or ())
        lines = [line for file in files for line in file.read_text().splitlines()]
        numbers = np.array([names.index(json.loads(line)["prediction"]) for line in lines])
        plot_confusion(np.tile(data.labels(), len(results)), numbers, names, output / CONFUSION)
    if model is None or model.trained is None:
        return seeds.publish(args, best, None, {})
    (paper, limit), choice = _CARDS[model.kind], train.problem_type == "multiple_choice"
    name, pictures = args.repository(), {CURVE: "Loss over epochs", CONFUSION: "Confusion matrix"}
    chosen = f"This checkpoint is the best epoch by {args.metric_for_best_model} of the seed with the lowest loss."
    examples = ", ".join(f"{len(part.examples):,} {name}" for name, part in sets.items())
    card = {
        "name": name,
        "summary": f"A {paper} fine-tuned on {plain(train.source)}.",
        "snippet": snippet(name, train, hub_name(source) or "the base checkpoint", model),
        "model": {"classes": ", ".join(map(plain, train.label_names or ())) or "none"},
        "training": {**seeds.training_facts(args, best, public_name(source)), "examples": examples},
        "pictures": {file: text for file, text in pictures.items() if (output / file).exists()},
        "measured": f"{table}\n\n{chosen}{seeds.caveat(reported, 'the checkpoint')}",
        "limits": [_SMALL, limit],
        "pipeline_tag": "multiple-choice" if choice else "text-classification",
        "tags": [model.kind, "long-documents"],
        "adapter": model.base is not None,
        "base_model": hub_name(source),
        "scores": {metric: value for metric, value in best.scores[reported].items() if metric != "loss"},
        "dataset": data.source,
    }
    seeds.publish(args, best, model.trained, card)


def snippet(name: str, train: LabelledDocuments, base: str, model: Model) -> str:
    """Code that opens the model, or an adapter on its base, and reads a document, with what is asked about it."""
    choice, pair = train.problem_type == "multiple_choice", train.examples[0].asked and model.kind in models.MODELS
    auto = "AutoModelForMultipleChoice" if choice else "AutoModelForSequenceClassification"
    lines = ["import nextlevelbert  # registers the architecture"]
    if model.base is not None:
        more = "".join(f", {key}={value!r}" for key, value in model.base.items())
        lines += ["from peft import PeftModel", f"from transformers import {auto}, AutoTokenizer", ""]
        lines += [f'base = {auto}.from_pretrained("{base}"{more})']
        lines += [f'model = PeftModel.from_pretrained(base, "{name}").eval()']
    else:
        lines += [f"from transformers import {auto}, AutoTokenizer", "", f'model = {auto}.from_pretrained("{name}")']
    lines += [f'tokenizer = AutoTokenizer.from_pretrained("{name}")']
    lines += ['document = tokenizer("the text of a whole document", return_tensors="pt")']
    if not pair:
        return "\n".join([*lines, "scores = model(**document).logits"])
    texts = '["the question? one answer", "the question? another"]' if choice else '["a question about it"]'
    lines += [f'pair = tokenizer({texts}, padding=True, return_tensors="pt")']
    ids = ", ".join(f'pair_{key}=pair["{key}"]' + "[None]" * choice for key in ("input_ids", "attention_mask"))
    return "\n".join([*lines, f"scores = model(**document, {ids}).logits"])
