"""``--task classification`` and ``--task multiple_choice``: documents, alone or with a question each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForMultipleChoice, AutoTokenizer, set_seed
from transformers import AutoModelForSequenceClassification as AutoClassifier

from ..data.labels import read_label_names
from ..data.rows import fingerprint
from ..evaluation.scores import task_scores
from ..finetuning import arguments, encoding
from ..finetuning.arguments import DataArguments, FinetuningArguments, LoraArguments, hub_name, option, public_name
from ..finetuning.lora import SavedAdapter, with_lora
from ..finetuning.seeds import Result, run_seeds
from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_bert_al import BertAlForSequenceClassification
from ..models.modeling_chunkbert import ChunkBertForSequenceClassification
from ..models.pretrained import usable_positions
from ..training.trainer import CardTrainer, parse, take_option
from . import labelled_documents as labelled
from .baselines import MeanClassifier, tfidf
from .classification_report import Model, finish, scored
from .labelled_documents import ColumnArguments, LabelledDocuments, TokenRows, VectorRows
from .published import choice_table, classification_table

logger = logging.getLogger(__name__)

Sets = dict[str, LabelledDocuments]
_PROBLEMS = ["single_label_classification", "multi_label_classification", "regression"]


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
    class_weights: bool = option(False, "Weight classes by inverse frequency.")
    sigmoid: bool = option(
        False, "Tell two classes apart by one output above 0.5, as the NextLevelBERT paper on MuLD."
    )
    question_first: bool = option(
        False, "Put each question before its document, as text; by default, a model over vectors encodes it apart."
    )


@dataclass(kw_only=True)
class ChoiceArguments:
    """Candidate answers."""

    _argument_group_name = "data"

    candidates_column: str = option("choices", "Column of the lists of candidate answers.")


@dataclass(kw_only=True)
class HeadArguments:
    """What of a model over chunk vectors is trained."""

    _argument_group_name = "model"

    freeze_encoder: bool = option(False, "Train only the head, on the model's frozen document vectors.")


# The options of each --model_type, and the class of those that are trained from text.
_OVER_VECTORS = (arguments.VectorModelArguments, HeadArguments, LoraArguments)
KINDS: dict[str, tuple[type, ...]] = {
    "nextlevelbert": _OVER_VECTORS,
    "hate": _OVER_VECTORS,
    "chunkbert": (arguments.TextModelArguments, arguments.ChunkBertArguments, LoraArguments),
    "bert-al": (arguments.TextModelArguments, arguments.BertAlArguments, LoraArguments),
    "truncated": (arguments.TextModelArguments,),
}
TEXT_MODELS: dict[str, Any] = {
    "chunkbert": ChunkBertForSequenceClassification,
    "bert-al": BertAlForSequenceClassification,
    "truncated": AutoClassifier,
}
# Options without influence on the result, or told otherwise.
_UNSIGNED = ("model", "cache_dir", "chunk_batch_size", "chunk_encoder", "label_names_file")


def over_vectors(
    args: Any, sets: Sets, config: dict[str, Any], sigmoid: bool, options: Any, head: Any, lora: Any
) -> Model:
    """NextLevelBERT, HATE, or a baseline over the vectors of a frozen encoder, which are made once."""
    choice = sets["train"].problem_type == "multiple_choice"
    source = encoding.open_source(options, ("avg_sbert", "sbert") + ("tfidf",) * (not choice))
    baseline = options.model in ("avg_sbert", "sbert") or source.kind == "other"
    if (baseline and (head.freeze_encoder or lora.lora or args.push_to_hub)) or (
        lora.lora and (head.freeze_encoder or options.model == "untrained")
    ):
        raise ValueError(
            f"--model {options.model}: --lora is for a saved checkpoint, without --freeze_encoder; a baseline takes "
            "neither, and no --push_to_hub."
        )
    auto = AutoModelForMultipleChoice if choice else AutoClassifier
    if not baseline and auto not in encoding.MODELS[source.kind]:
        raise ValueError(f"A {source.kind} has no head for multiple choice; give a NextLevelBERT with --model.")
    asked = [text for data in sets.values() for example in data.examples for text in example.asked]
    documents = [text for data in sets.values() for text in data.documents()]
    vectors = encoding.encode_once(options, args, source, documents + asked)
    if long := sum(len(vectors[text]) > 1 for text in set(asked)):
        logger.warning("%d questions are longer than a chunk; each is the mean of its chunk vectors.", long)
    outputs, size = 1 if choice else len(config["id2label"]), next(iter(vectors.values())).shape[1]
    own = {} if choice else {**config, "text_pair": bool(asked)}

    def new() -> Any:
        if baseline:
            return MeanClassifier(size, outputs, bool(asked), choice, config["problem_type"])
        model = encoding.open_model(options, source, auto, **own)
        if head.freeze_encoder:
            freeze(model.base_model)
        return with_lora(model, lora) if lora.lora else model

    trained: Any = None if baseline else partial(encoding.with_chunk_encoder, source, auto)
    if lora.lora:
        trained = partial(SavedAdapter, tokenizer=source.encoder.tokenizer, base=hub_name(options.model))  # type: ignore[union-attr]
    rows = {name: VectorRows(data, vectors, sigmoid, options.model == "sbert") for name, data in sets.items()}
    rate = 1e-3 if baseline or head.freeze_encoder or lora.lora else 5e-5
    base = {} if choice else {"num_labels": outputs, "text_pair": bool(asked)}
    return Model(source.kind, rows, new, trained, source.weights, rate, lora.lora, base)


def freeze(encoder: nn.Module) -> None:
    """Leaves the encoder as it is while a head is trained, without dropout."""
    encoder.requires_grad_(False)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # its configuration is saved as it was


def from_text(args: Any, sets: Sets, config: dict[str, Any], sigmoid: bool, options: Any, *parts: Any) -> Model:
    """ChunkBERT, BERT-AL, or (`truncated`) any encoder with a head on the start of each document, trained whole."""
    kind, lora = options.model_type, parts[-1] if parts else LoraArguments()
    if sets["train"].examples[0].question is not None:
        raise ValueError(f"A {kind} reads no questions; --question_first puts each before its document.")
    try:
        stored = AutoConfig.from_pretrained(options.model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(f"--model {options.model!r} is neither a folder with an encoder nor on the Hub.") from error
    if stored != kind and (stored in KINDS or lora.lora):
        raise ValueError(
            f"--model is a {stored}; a {kind} is made of a plain encoder, and --lora takes a saved {kind}."
        )
    chosen = {key: value for part in parts[:-1] for key, value in vars(part).items() if value is not None}
    model_class = TEXT_MODELS[kind]

    def new() -> Any:
        if kind in (stored, "truncated"):
            model = model_class.from_pretrained(options.model, ignore_mismatched_sizes=True, **config, **chosen)
        else:
            model = model_class.from_encoder(options.model, **config, **chosen)
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return with_lora(model, lora) if lora.lora else model

    def trained(folder: Path) -> Any:
        if lora.lora:
            return SavedAdapter(folder, tokenizer, hub_name(options.model))
        tokenizer.save_pretrained(str(args.output_dir))
        return model_class.from_pretrained(folder)

    set_seed(args.seed)  # so that a random part is the same whenever it is hashed
    reader, tokenizer = new(), AutoTokenizer.from_pretrained(options.model)
    window = usable_positions(getattr(reader.config, "encoder_config", reader.config))
    limits = {"train": getattr(reader.config, "max_training_tokens", None)}  # the others are read whole
    if kind == "truncated":
        limits = dict.fromkeys(sets, min(window or tokenizer.model_max_length, tokenizer.model_max_length))
    rows = {name: TokenRows(data, tokenizer, sigmoid, limits.get(name), kind) for name, data in sets.items()}
    base = {"num_labels": len(config["id2label"]), **chosen, "ignore_mismatched_sizes": True}
    rate = 1e-3 if lora.lora else 3e-5
    return Model(kind, rows, new, trained, weights_fingerprint(reader), rate, lora.lora, base, window)


def read_sets(columns: ColumnArguments, labels: Any, data: DataArguments, seed: int) -> Sets:
    """The sets, checked; all have the classes and the kind of labels of the training set."""
    if columns.halve_validation and (data.place("validation") is None or data.place("test") is not None):
        raise ValueError("--halve_validation makes half of a validation set the test set: give that set alone.")
    known: Any = None  # names of classes and kind of problem

    def read(name: str, source: str, split: str) -> LabelledDocuments:
        nonlocal known
        if isinstance(labels, ChoiceArguments):
            table = choice_table(source, split, data.dataset_config_name)
            return labelled.read_choices(table, columns, labels.candidates_column)
        table = classification_table(source, split, data.dataset_config_name, labels.arrangement)
        known = known or (read_label_names(labels.label_names_file), labels.problem_type)
        found = labelled.read_classes(table, columns, *known)
        known = (found.label_names, found.problem_type)
        return found

    sets = data.read_sets(read, lambda train, share: labelled.hold_out_documents(train, share, seed))
    if columns.halve_validation:
        sets["validation"], sets["test"] = labelled.halve_by_document(sets["validation"])
    if isinstance(labels, ClassArguments) and labels.question_first:
        sets = {name: part.questions_first() for name, part in sets.items()}
    learned, problem = set(sets["train"].documents()), sets["train"].problem_type
    classes = len(sets["train"].label_names or ())
    for name, part in sets.items():
        logger.info("%s: %d examples, %d documents (%s)", name, len(part.examples), len(part.documents()), part.source)
        if name != "test" and not part.labelled:
            raise ValueError(f"The {name} set has no labels ({part.source}); give one with labels.")
        if name != "train" and (shared := len(learned.intersection(part.documents()))):
            logger.warning("%d texts of the %s set are in the training set, too.", shared, name)
    if problem == "single_label_classification" and classes == 1:
        raise ValueError(f"{sets['train'].source} has one class only; give rows of two, or --label_names_file.")
    if isinstance(labels, ClassArguments) and labels.sigmoid and (classes, problem) != (2, _PROBLEMS[0]):
        raise ValueError(f"--sigmoid is for two classes, and {sets['train'].source} has other labels; leave it out.")
    return sets


def head_config(train: LabelledDocuments, sigmoid: bool) -> dict[str, Any]:
    """Names of the outputs and kind of problem, as a configuration has them; a value is a single "class"."""
    if train.problem_type == "multiple_choice":
        return {"problem_type": _PROBLEMS[0]}
    names = dict(enumerate((train.label_names or ("value",))[1 if sigmoid else 0 :]))  # the second class alone
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    return {**labels, "problem_type": _PROBLEMS[1] if sigmoid else train.problem_type}


def weighted_loss(train: LabelledDocuments, smoothing: float) -> Callable[..., torch.Tensor]:
    """Cross-entropy with class weights N / (K * count), as in scikit-learn, for `Trainer(compute_loss_func=)`.

    It is not divided by the weights of its batch, so that it does not depend on how processes share a batch.
    """
    counts = np.bincount(train.labels(), minlength=len(train.label_names or ()))
    if not counts.all():
        raise ValueError(f"{train.source} has no training example of some class; --class_weights needs one of each.")
    weights = torch.tensor(counts.sum() / (len(counts) * counts), dtype=torch.float32)

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        logits = outputs["logits"]
        loss = nn.CrossEntropyLoss(weights.to(logits), reduction="none", label_smoothing=smoothing)
        return loss(logits, labels).mean()

    return loss


def main(words: list[str], task: str = "classification") -> None:
    """Classifies documents, or chooses among answers to questions about them; each --model_type has its options."""
    choice = task == "multiple_choice"
    kind = take_option(words, "model_type", "nextlevelbert")[0] or ""
    if kind not in (kinds := ["nextlevelbert"] if choice else [*KINDS]):
        raise ValueError(f"--task {task} takes --model_type {', '.join(kinds)}, not {kind!r}.")
    classes = (ColumnArguments, ChoiceArguments if choice else ClassArguments, DataArguments, FinetuningArguments)
    prog = f"run_finetune.py --task {task} --model_type {kind}"
    *own, columns, labels, data, args = parse((*KINDS[kind], *classes), words, prog, main.__doc__ or "", f"{task}-")

    # 1. The sets, and what all seeds share.
    sets = read_sets(columns, labels, data, args.seed)
    train, options, problem = sets["train"], own[0], sets["train"].problem_type
    sigmoid, weights = not choice and labels.sigmoid, not choice and labels.class_weights
    if (weights or args.label_smoothing_factor) and (sigmoid or problem != _PROBLEMS[0]):
        raise ValueError(f"--class_weights and --label_smoothing_factor are for single labels, not for {problem}.")
    if options.model == "tfidf" and not choice:
        result, folder = Result(0, {}), Path(args.output_dir) / "seed-0"
        for name, logits in tfidf(sets).items():
            result.scores |= scored(args, folder, name, sets[name], logits)
        return finish(args, [result], sets, "tfidf", None)
    prepare = over_vectors if kind in encoding.MODELS else from_text
    model = prepare(args, sets, head_config(train, sigmoid), sigmoid, *own)
    args.learning_rate = model.rate if args.learning_rate is None else args.learning_rate
    loss = weighted_loss(train, args.label_smoothing_factor) if weights else None

    def logits_of(outputs: Any) -> np.ndarray:
        """Logits ``[N, K]`` of K classes; one output z of two classes is 0 and z."""
        return np.concatenate([np.zeros_like(outputs), outputs], axis=1) if sigmoid else np.asarray(outputs)

    def metrics(found: Any) -> dict[str, float]:
        labels = found.label_ids[:, 0] if sigmoid else found.label_ids
        return task_scores(problem, logits_of(found.predictions), labels)

    # 2. A training per seed.
    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        rows = model.rows
        return CardTrainer(
            model=model.new(),
            args=seed_args,
            data_collator=rows["train"].collate,
            train_dataset=rows["train"],
            eval_dataset=rows["validation"],
            compute_metrics=metrics,
            compute_loss_func=loss,
        )

    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        scores: dict[str, dict[str, float]] = {}
        for name in [name for name in sets if name != "train"]:
            output = trainer.predict(model.rows[name])
            found = scored(args, folder, name, sets[name], logits_of(output.predictions), model)
            if name in found:
                found[name]["loss"] = output.metrics["test_loss"]
            scores |= found
        return scores, {}

    settings = {key: value for part in (*own, labels) for key, value in vars(part).items() if key not in _UNSIGNED}
    settings |= {"task": task, "model": public_name(options.model), "weights": model.weights, **args.signature()}
    settings |= {f"{name}_sha256": fingerprint(part.content()) for name, part in sets.items()}
    results = run_seeds(args, settings, make_trainer, score)

    # 3. The table, the pictures, and the model of the best seed with its card.
    if args.should_save:
        finish(args, results, sets, options.model, model)


def choose(words: list[str]) -> None:
    """``--task multiple_choice``."""
    main(words, "multiple_choice")
