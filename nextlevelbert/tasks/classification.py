"""``--task classification`` and ``--task multiple_choice``: documents, alone or with a question
each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedConfig,
    set_seed,
)
from transformers import AutoModelForMultipleChoice as AutoChooser
from transformers import AutoModelForSequenceClassification as AutoClassifier
from transformers.modeling_outputs import SequenceClassifierOutput

from ..chunk_vectors import pad_vectors
from ..data.rows import fingerprint
from ..finetuning import models, seeds
from ..finetuning.models import LoraArguments, hub_name, public_name, with_lora
from ..finetuning.seeds import DataArguments, FinetuningArguments, Result, option
from ..models.chunk_encoder import masked_mean, weights_fingerprint
from ..models.modeling_nextlevelbert import TaskClassifier, concatenate_pairs
from ..models.pretrained import classification_loss, usable_positions
from ..training.trainer import CURVE, CardTrainer, claim, parse, plain, take_option
from . import labelled_documents as labelled
from .labelled_documents import SEVERAL, SINGLE, ColumnArguments, Example, LabelledDocuments, tfidf

logger = logging.getLogger(__name__)

Sets = dict[str, LabelledDocuments]
Batch = dict[str, torch.Tensor]
TokenRow = tuple[Example, list[int]]
_CHUNKS = (
    "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as"
    " its vector."
)
_SMALL = (
    "Small sets have wide margins; the deviation over seeds does not cover the choice of the set."
)
# Tokens above which documents are scored apart for every encoder (ChunkBERT, table 3); documents
# that an encoder of fewer tokens cannot read at once count as long, too.
LONG_DOCUMENT = 512
# What cards say of each --model_type.
_CARDS = {
    "nextlevelbert": ("[NextLevelBERT](https://arxiv.org/abs/2402.17682)", _CHUNKS),
    "hate": ("HATE (Hierarchical Attention-based Text Encoder)", _CHUNKS),
    "chunkbert": (
        "[ChunkBERT](https://arxiv.org/abs/2310.20558)",
        "Only convolutions see across chunk borders.",
    ),
    "bert-al": (
        "BERT-AL",
        "Information flows forward only: a segment is read without knowledge of later ones.",
    ),
    "truncated": (
        "plain encoder",
        "Only the start of a document is read, as far as the encoder's positions go.",
    ),
}


# --- Options


@dataclass(kw_only=True)
class ClassArguments:
    """The classes."""

    _argument_group_name = "classes"

    label_names_file: str | None = option(
        None, "JSON of the classes, a list or keys; by default the training set's."
    )
    arrangement: str | None = option(
        None,
        "inverted: EURLEX-57K with the main body first. paired: every two books joined (Paired Book"
        " Summary).",
        choices=["inverted", "paired"],
    )
    sigmoid: bool = option(
        False, "Tell two classes apart by one output above 0.5, as the paper does on MuLD."
    )


# The options of each --model_type.
KINDS: dict[str, tuple[type, ...]] = {
    "nextlevelbert": (models.VectorModelArguments, LoraArguments),
    "hate": (models.VectorModelArguments, LoraArguments),
    "chunkbert": (models.TextModelArguments, models.ChunkBertArguments),
    "bert-al": (models.TextModelArguments, models.BertAlArguments),
    "truncated": (models.TextModelArguments,),
}
ABOUT = (
    "Classifies documents, or chooses among answers to questions about them; each --model_type has"
    " its options."
)
# Options without influence on the result, or told otherwise.
_UNSIGNED = ("model", "cache_dir", "chunk_batch_size", "chunk_encoder", "label_names_file")


# --- Sets


def read_sets(
    columns: ColumnArguments, data: DataArguments, seed: int, labels: ClassArguments | None
) -> Sets:
    """The sets, checked; all have the classes and kind of labels of the training set, or (without
    any) choices."""
    if columns.halve_validation and (
        data.place("validation") is None or data.place("test") is not None
    ):
        raise ValueError(
            "--halve_validation makes half of a validation set the test set: give only a validation"
            " set."
        )
    known: Any = None  # names of classes and kind of problem

    def read(name: str, source: str, split: str) -> LabelledDocuments:
        nonlocal known
        if labels is None:
            return labelled.read_choices(
                labelled.choice_table(source, split, data.dataset_config_name), columns
            )
        table = labelled.classification_table(
            source, split, data.dataset_config_name, labels.arrangement
        )
        names = labels.label_names_file
        known = known or (labelled.read_label_names(names) if names else None, None)
        part = labelled.read_classes(
            table, columns, known[0], known[1], by_number=names is not None
        )
        known = (part.label_names, part.problem_type)
        return part

    sets = data.read_sets(read, seed, labelled.hold_out_documents)
    if columns.halve_validation:
        sets["validation"], sets["test"] = labelled.halve_by_document(sets["validation"])
    train, learned = sets["train"], set(sets["train"].documents())
    for name, part in sets.items():
        logger.info(
            "%s: %d examples, %d documents (%s)",
            name,
            len(part.examples),
            len(part.documents()),
            part.source,
        )
        if name != "test" and not part.labelled:
            raise ValueError(f"The {name} set has no labels ({part.source}); give one with labels.")
        if name != "train" and (shared := len(learned.intersection(part.documents()))):
            logger.warning("%d texts of the %s set are in the training set, too.", shared, name)
    classes = len(train.label_names or ())
    if train.problem_type == SINGLE and classes == 1:
        raise ValueError(
            f"{train.source} has one class only; give rows of two, or --label_names_file."
        )
    if labels is None or not labels.sigmoid:
        return sets
    if (classes, train.problem_type) != (2, SINGLE):
        raise ValueError(
            f"--sigmoid is for two classes, and {train.source} has other labels; leave it out."
        )
    return {name: replace(part, sigmoid=True) for name, part in sets.items()}


# --- Batches


def collate_vectors(
    data: LabelledDocuments, vectors: Mapping[str, torch.Tensor], rows: list[Example]
) -> Batch:
    """N examples over B distinct documents, each of which a model over chunk vectors reads once.

    What is asked about a document is the mean of its chunk vectors: ``[N, D]``, or ``[N, C, D]``
    for choices.
    """
    place = {text: number for number, text in enumerate(dict.fromkeys(row.text for row in rows))}
    # A tensor with a row per example comes first: `Trainer` takes its length for the batch size.
    batch = {"document_index": torch.tensor([place[row.text] for row in rows])} | targets(
        data, rows
    )
    if rows[0].asked:
        pairs = [
            torch.stack([vectors[text].float().mean(dim=0) for text in row.asked]) for row in rows
        ]
        batch["pair_embeds"] = torch.stack([pair if rows[0].choices else pair[0] for pair in pairs])
    return batch | pad_vectors([vectors[text].float() for text in place])


def collate_tokens(data: LabelledDocuments, tokenizer: Any, rows: list[TokenRow]) -> Batch:
    """N examples with their token ids, padded: ``input_ids`` and ``attention_mask`` ``[N, T]``."""
    ids = DataCollatorWithPadding(tokenizer)([{"input_ids": ids} for _, ids in rows])
    return {**ids, **targets(data, [example for example, _ in rows])}


def targets(data: LabelledDocuments, rows: list[Example]) -> Batch:
    """``labels`` of some rows, where there are any."""
    return {} if rows[0].label is None else {"labels": replace(data, examples=rows).targets()}


def token_rows(
    data: LabelledDocuments, tokenizer: Any, limit: int | None, kind: str
) -> tuple[list[TokenRow], Any]:
    """Examples with the token ids of their documents, after their questions, cut to `limit`; and
    the lengths before.

    For a ``"truncated"`` encoder a cut document ends with the tokenizer's last special token.
    """
    texts = [
        row.text if row.question is None else f"{row.question}\n{row.text}" for row in data.examples
    ]
    ids = tokenizer(texts, verbose=False)["input_ids"]
    lengths = np.array([len(row) for row in ids])
    if not all(lengths > tokenizer.num_special_tokens_to_add()):
        name = data.examples[int(lengths.argmin())].id
        raise ValueError(
            f"{data.source}: the document of {name!r} contains no token; leave the row out."
        )
    if limit is not None and (longer := int((lengths > limit).sum())):
        logger.warning(
            "%s: the first %d tokens of documents are read; %d are longer.",
            data.source,
            limit,
            longer,
        )
        tail = int(kind == "truncated")
        ids = [row[: limit - tail] + row[-1:] * tail if len(row) > limit else row for row in ids]
    return list(zip(data.examples, ids, strict=True)), lengths


# --- Models


class MeanClassifier(nn.Module):
    """Avg. SBERT: the classifier of our heads over the plain mean of the chunk vectors; SBERT over
    the first alone.

    With `pair`, documents come with questions, or (`choice`) with choices, which gives logits ``[N,
    C]``.
    """

    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(
        self, hidden_size: int, outputs: int, pair: bool, choice: bool, problem_type: str
    ) -> None:
        super().__init__()
        self.choice, self.problem_type = choice, problem_type
        self.classifier = TaskClassifier(hidden_size * (2 if pair else 1), 768, outputs)
        for parameter in self.classifier.parameters():  # as the heads start
            (
                nn.init.normal_(parameter, std=0.02)
                if parameter.ndim == 2
                else nn.init.zeros_(parameter)
            )

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """As `NextLevelBertForSequenceClassification` and `NextLevelBertForMultipleChoice`."""
        documents = masked_mean(inputs_embeds, attention_mask)  # [B, D]
        logits = self.classifier(
            concatenate_pairs(documents, pair_embeds, document_index)
        )  # [N, K] or [N, C, 1]
        logits = logits.squeeze(-1) if self.choice else logits
        config = PreTrainedConfig(num_labels=logits.shape[-1], problem_type=self.problem_type)
        loss = None if labels is None else classification_loss(logits, labels, config)
        return SequenceClassifierOutput(loss, logits)


class Model(NamedTuple):
    """What all seeds share, whatever the kind of model."""

    kind: str
    rows: dict[str, list[Any]]  # the sets, as it reads them
    collate: Callable[[list[Any]], dict[str, torch.Tensor]]
    new: Callable[[], Any]  # at the start of a seed
    trained: (
        Callable[[Path], Any] | None
    )  # from the folder of a seed, to be published; None for a baseline
    weights: str  # hash of what a training starts from
    rate: float  # usual learning rate
    window: int | None = None  # documents of more tokens are scored apart, too
    lengths: Mapping[str, np.ndarray] = {}  # of documents in tokens, where there is a window
    how: Mapping[str, Any] = {}  # options that say what is trained, where it is not everything


def over_vectors(args: Any, sets: Sets, options: Any, part: Any) -> Model:
    """NextLevelBERT, HATE, or a baseline over the vectors of a frozen encoder, which are made
    once."""
    config = head_config(sets["train"])
    choice = not config
    source = models.open_source(options, ("avg_sbert", "sbert") + ("tfidf",) * (not choice))
    baseline = options.model in ("avg_sbert", "sbert") or source.kind == "other"
    if part.lora and (baseline or part.freeze_encoder or options.model == "untrained"):
        raise ValueError("--lora is for a saved checkpoint, without --freeze_encoder.")
    if part.lora:
        models.require_layers(options.model)
    if baseline and (part.freeze_encoder or args.push_to_hub):
        raise ValueError(
            f"--model {options.model} is a baseline; leave out --freeze_encoder and --push_to_hub."
        )
    if choice and source.kind == "hate":
        raise ValueError(
            "A hate has no head for multiple choice; give a NextLevelBERT with --model."
        )
    asked = [text for data in sets.values() for example in data.examples for text in example.asked]
    vectors = models.encode_once(
        options, args, source, [text for data in sets.values() for text in data.documents()]
    )
    vectors |= (
        models.encode_once(options, args, source, asked) if asked else {}
    )  # apart: one more costs little
    auto, outputs = (AutoChooser, 1) if choice else (AutoClassifier, len(config["id2label"]))
    pair = {} if choice else {"text_pair": bool(asked)}
    size = next(iter(vectors.values())).shape[1]

    def new(lora: bool = part.lora) -> Any:
        if baseline:
            return MeanClassifier(
                size, outputs, bool(asked), choice, config.get("problem_type", SINGLE)
            )
        model = models.open_model(options, source, auto, **config, **pair)
        if part.freeze_encoder:
            freeze(model.base_model)
        return with_lora(model, part) if lora else model

    def trained(folder: Path) -> Any:
        return models.with_chunk_encoder(
            source, auto, folder, new(lora=False) if part.lora else None
        )

    rows = {name: data.examples for name, data in sets.items()}
    collate = partial(collate_vectors, sets["train"], vectors)
    rate = 1e-3 if baseline or part.freeze_encoder or part.lora else 5e-5
    how = vars(part) if part.lora else {"freeze_encoder": True} if part.freeze_encoder else {}
    return Model(
        source.kind,
        rows,
        collate,
        new,
        None if baseline else trained,
        source.weights,
        rate,
        how=how,
    )


def from_text(args: Any, sets: Sets, options: Any, *parts: Any) -> Model:
    """ChunkBERT, BERT-AL, or (`truncated`) any encoder with a head on the start of each document,
    trained whole."""
    kind, stored = options.model_type, models.model_type_of(options.model)
    if stored != kind and stored in KINDS:
        raise ValueError(f"--model is a {stored}; to make a {kind}, give a plain encoder.")
    config = head_config(sets["train"])
    config |= {
        key: value for part in parts for key, value in vars(part).items() if value is not None
    }
    if config.pop("keep_attention_dropout", False) and stored != kind:
        config["encoder_config"] = AutoConfig.from_pretrained(options.model).to_dict()

    def new() -> Any:
        if kind in (stored, "truncated"):
            model = AutoClassifier.from_pretrained(
                options.model, ignore_mismatched_sizes=True, **config
            )
        else:
            model = AutoClassifier._model_mapping[CONFIG_MAPPING[kind]].from_encoder(
                options.model, **config
            )
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return model

    def trained(folder: Path) -> Any:
        tokenizer.save_pretrained(str(args.output_dir))
        return AutoClassifier.from_pretrained(folder)

    set_seed(args.seed)  # so that a random part is the same whenever it is hashed
    reader, tokenizer = new(), AutoTokenizer.from_pretrained(options.model)
    window = usable_positions(getattr(reader.config, "encoder_config", reader.config))
    limits = {
        "train": getattr(reader.config, "max_training_tokens", None)
    }  # the others are read whole
    if kind == "truncated":
        limits = dict.fromkeys(
            sets, min(window or tokenizer.model_max_length, tokenizer.model_max_length)
        )
    read = {
        name: token_rows(data, tokenizer, limits.get(name), kind) for name, data in sets.items()
    }
    rows, lengths = (
        {name: pair[0] for name, pair in read.items()},
        {name: pair[1] for name, pair in read.items()},
    )
    collate = partial(collate_tokens, sets["train"], tokenizer)
    return Model(
        kind=kind,
        rows=rows,
        collate=collate,
        new=new,
        trained=trained,
        weights=weights_fingerprint(reader),
        rate=3e-5,
        window=min(window or LONG_DOCUMENT, LONG_DOCUMENT),
        lengths=lengths,
    )


def freeze(encoder: nn.Module) -> None:
    """Leaves the encoder as it is while a head is trained, without dropout."""
    encoder.requires_grad_(False)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # its configuration is saved as it was


def head_config(train: LabelledDocuments) -> dict[str, Any]:
    """Names of the outputs and kind of problem, as a configuration has them; nothing for multiple
    choice."""
    if train.problem_type == "multiple_choice":
        return {}
    names = dict(
        enumerate((train.label_names or ())[int(train.sigmoid) :])
    )  # the second class alone
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    return {**labels, "problem_type": SEVERAL if train.sigmoid else train.problem_type}


# --- The task


def main(words: list[str], task: str = "classification") -> None:
    choice = task == "multiple_choice"
    kind = take_option(words, "model_type", "nextlevelbert")[0] or ""
    if kind not in (kinds := ["nextlevelbert"] if choice else [*KINDS]):
        raise ValueError(f"--task {task} takes --model_type {', '.join(kinds)}, not {kind!r}.")
    classes = (
        *KINDS[kind],
        *[ClassArguments] * (not choice),
        ColumnArguments,
        DataArguments,
        FinetuningArguments,
    )
    *parts, columns, data, args = parse(
        classes, words, f"--task {task} --model_type {kind}", ABOUT, f"{task}-"
    )

    # 1. The sets, and what all seeds share.
    settings = {
        key: value for part in parts for key, value in vars(part).items() if key not in _UNSIGNED
    }
    sets = read_sets(columns, data, args.seed, None if choice else parts.pop())
    options = parts[0]
    settings |= {"task": task, "model": public_name(options.model)}
    for name, data_set in sets.items():
        settings[f"{name} set"] = fingerprint([data_set.label_names, *map(vars, data_set.examples)])
    if options.model == "tfidf" and not choice:
        claim(args.output_dir, settings)
        result, folder = Result(0, {}), Path(args.output_dir) / "seed-0"
        for name, logits in tfidf(sets).items():
            result.scores |= scored(args, folder, name, sets[name], logits)
        return finish(args, [result], sets, "tfidf", None)
    prepare = over_vectors if kind in models.FAMILIES else from_text
    model = prepare(args, sets, *parts)
    args.learning_rate = model.rate if args.learning_rate is None else args.learning_rate

    # 2. A training per seed.
    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        validation, sides = sets["validation"], (model.rows["train"], model.rows["validation"])

        def metrics(output: Any) -> dict[str, float]:
            return validation.scores(validation.logits(output.predictions))

        return CardTrainer(model.new(), seed_args, model.collate, *sides, compute_metrics=metrics)

    def score(
        trainer: CardTrainer, folder: Path
    ) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        scores: dict[str, dict[str, float]] = {}
        trainer.compute_metrics = None
        for name in [name for name in sets if name != "train"]:
            output = trainer.predict(model.rows[name])
            scores |= scored(
                args, folder, name, sets[name], sets[name].logits(output.predictions), model
            )
            if name in scores:
                scores[name]["loss"] = output.metrics["test_loss"]
        return scores, {}

    trivial = sets["train"].trivial_logits().repeat(len(sets["validation"].examples), axis=0)
    results = seeds.run_seeds(
        args,
        settings | {"weights": model.weights} | args.signature(),
        make_trainer,
        score,
        validated=[*sets["validation"].scores(trivial)],
    )

    # 3. The table, and the model of the best seed with its card.
    if args.should_save:
        finish(args, results, sets, options.model, model)


choose = partial(main, task="multiple_choice")


def scored(
    args: FinetuningArguments,
    folder: Path,
    name: str,
    data: LabelledDocuments,
    logits: np.ndarray,
    model: Any = None,
) -> dict[str, dict[str, float]]:
    """Writes predictions; the scores of a set, and (``"NAME, long"``) of its long documents."""
    if args.should_save:
        folder.mkdir(parents=True, exist_ok=True)
        labelled.write_predictions(folder / f"{name}_predictions.jsonl", data, logits)
    if not data.labelled:
        return {}
    scores = {name: data.scores(logits)}
    if (
        model
        and model.window
        and 0 < (long := model.lengths[name] > model.window).sum() < len(long)
    ):
        count = f"{long.sum()} of {len(long)} documents over {model.window} tokens"
        scores[f"{name}, long ({count})"] = data.scores(logits, long)
    return scores


def finish(
    args: FinetuningArguments, results: list[Result], sets: Sets, source: str, model: Model | None
) -> None:
    """Prints the results of all seeds, and publishes the model of the best with its card."""
    train, reported = (
        sets["train"],
        "test" if "test" in sets and sets["test"].labelled else "validation",
    )
    data = sets[reported]
    title = public_name(source) + (f" ({model.kind})" if model and model.window else "")
    rows = {
        f"{title}, {name}": seeds.mean_and_deviation([result.scores[name] for result in results])
        for name in results[0].scores
        if name.startswith(f"{reported}, long")
    }
    rows["most frequent label"] = {
        **data.scores(train.trivial_logits().repeat(len(data.examples), axis=0))
    }
    best, table = seeds.report(
        args, results, reported, title, rows, "loss" if model else "accuracy"
    )
    if model is None or model.trained is None:
        return seeds.publish(args, best, None, {})
    (paper, limit), choice, name = (
        _CARDS[model.kind],
        train.problem_type == "multiple_choice",
        args.repository(),
    )
    epoch = (
        f"best epoch by {args.metric_for_best_model}"
        if args.load_best_model_at_end
        else "last epoch"
    )
    scores = {metric: value for metric, value in best.scores[reported].items() if metric != "loss"}
    chosen = (
        f"This checkpoint is the {epoch} of the seed with the lowest loss (accuracy"
        f" {scores['accuracy']:.4f})."
    )
    chosen += f" `f1` is of the class {plain((train.label_names or ' ')[-1])}." * ("f1" in scores)
    facts = seeds.training_facts(
        args, best, public_name(source), models.WITHOUT * (model.kind in models.FAMILIES)
    )
    examples = ", ".join(f"{len(part.examples):,} {name}" for name, part in sets.items())
    card = {
        "name": name,
        "summary": f"A {paper} fine-tuned on {plain(train.source)}.",
        "snippet": snippet(name, train, model.kind),
        "model": {} if choice else {"classes": ", ".join(map(plain, train.label_names or ()))},
        "training": {**facts, **model.how, "examples": examples},
        "pictures": {CURVE: "Loss over epochs"},
        "limits": [_SMALL, limit],
        "measured": f"{table}\n\n{chosen}{seeds.caveat(reported, 'the checkpoint')}",
        "pipeline_tag": "multiple-choice" if choice else "text-classification",
        "tags": [model.kind, "long-documents"],
        "base_model": hub_name(source),
        "dataset": data.source,
        "scores": scores,
    }
    seeds.publish(args, best, model.trained, card)


def snippet(name: str, train: LabelledDocuments, kind: str) -> str:
    """Code that opens the model and reads a document, with what is asked about it."""
    choice, pair = train.problem_type == "multiple_choice", ""
    auto = "AutoModelForMultipleChoice" if choice else "AutoModelForSequenceClassification"
    lines = [
        "import nextlevelbert  # registers the architecture",
        f"from transformers import {auto}, AutoTokenizer",
    ]
    lines += [
        "",
        f'model = {auto}.from_pretrained("{name}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
    ]
    cut = ", truncation=True" * (kind == "truncated")
    lines += [f'document = tokenizer("the text of a whole document", return_tensors="pt"{cut})']
    if train.examples[0].asked and kind in models.FAMILIES:
        texts = (
            '["the question? one answer", "the question? another"]'
            if choice
            else '["a question about it"]'
        )
        lines += [f'pair = tokenizer({texts}, padding=True, return_tensors="pt")']
        last = "[None]" * choice
        pair = (
            f', pair_input_ids=pair["input_ids"]{last},'
            f' pair_attention_mask=pair["attention_mask"]{last}'
        )
    return "\n".join([*lines, f"scores = model(**document{pair}).logits"])
