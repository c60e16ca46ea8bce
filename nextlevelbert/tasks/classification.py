"""The tasks ``classification`` and ``multiple_choice``: documents, with or without questions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers import AutoModelForMultipleChoice as AutoChooser
from transformers import AutoModelForSequenceClassification as AutoClassifier
from transformers.modeling_outputs import SequenceClassifierOutput

from ..chunk_vectors import pad_vectors
from ..finetuning import seeds
from ..finetuning.arguments import (
    FAMILIES,
    BertAlArguments,
    ChunkBertArguments,
    DataArguments,
    FinetuningArguments,
    LoraArguments,
    TextModelArguments,
    VectorModelArguments,
)
from ..finetuning.seeds import Result, Scores
from ..finetuning.vector_source import (
    WITHOUT,
    VectorSource,
    encode_once,
    model_type_of,
    open_model,
    open_source,
    require_layers,
    with_chunk_encoder,
    with_lora,
)
from ..models.chunk_encoder import masked_mean, weights_fingerprint
from ..models.configuration_nextlevelbert import usable_positions
from ..models.modeling_nextlevelbert import TaskClassifier, concatenate_pairs
from ..models.pretrained import classification_loss
from ..training.cards import model_card, name_on_hub, plain, public_name
from ..training.options import option, parse, pop_option
from ..training.plots import CURVE
from ..training.runs import bind_folder, fingerprint
from ..training.trainer import CardTrainer
from . import labelled_documents as labelled
from .labelled_documents import SEVERAL, SINGLE, ColumnArguments, Example, LabelledDocuments

logger = logging.getLogger(__name__)

Sets = dict[str, LabelledDocuments]
Batch = dict[str, torch.Tensor]
TokenRow = tuple[Example, list[int]]  # with the token ids of its document
_CHUNKS = (
    "The frozen chunk encoder reads one chunk at a time: details within a chunk are only as good as"
    " its vector."
)
_SMALL = (
    "Scores on small sets are uncertain; the standard deviation over seeds does not include"
    " sampling of the test set."
)
# Tokens above which documents are scored apart for every encoder (ChunkBERT, table 3). Documents
# that an encoder of fewer tokens cannot read at once are long, too.
LONG_DOCUMENT = 512
# What the card of each --model_type calls the model, and its limit.
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
        None,
        "JSON of the classes: a list, or an object with the classes as keys (default: the"
        " classes of the training set).",
    )
    arrangement: str | None = option(
        None,
        "Arrangement of a published data set. inverted: EURLEX-57K with the main body first."
        " paired: every two books of the CMU Book Summary Corpus as one document.",
        choices=["inverted", "paired"],
    )
    sigmoid: bool = option(
        default=False,
        help="Predict the second of two classes if one output is above 0.5, as the paper does on"
        " MuLD.",
    )


# The options of each --model_type.
MODEL_OPTIONS: dict[str, tuple[type, ...]] = {
    "nextlevelbert": (VectorModelArguments, LoraArguments),
    "hate": (VectorModelArguments, LoraArguments),
    "chunkbert": (TextModelArguments, ChunkBertArguments),
    "bert-al": (TextModelArguments, BertAlArguments),
    "truncated": (TextModelArguments,),
}
ABOUT = (
    "Classifies documents, or chooses among answers to questions about them. Each --model_type has"
    " its own options."
)
# Options that do not affect the result, or whose effect is recorded elsewhere.
_UNSIGNED = ("model", "cache_dir", "chunk_batch_size", "chunk_encoder", "label_names_file")


# --- Sets


def read_sets(
    columns: ColumnArguments, data: DataArguments, seed: int, labels: ClassArguments | None
) -> Sets:
    """Reads the sets; all have the classes and the kind of labels of the training set.

    Args:
        columns: names of the columns.
        data: where the sets are.
        seed: of the documents to hold out, if there is no validation set.
        labels: options of the classes; None for multiple choice.

    Raises:
        ValueError: for sets that do not fit the task.
    """
    has_only_validation = data.place("validation") is not None and data.place("test") is None
    if columns.halve_validation and not has_only_validation:
        raise ValueError(
            "--halve_validation makes half of a validation set the test set: give only a validation"
            " set."
        )
    names: Sequence[str] | None = None
    problem: labelled.ProblemType | None = None
    if labels is not None and labels.label_names_file:
        names = labelled.read_label_names(labels.label_names_file)

    def read(name: str, source: str, split: str) -> LabelledDocuments:
        nonlocal names, problem
        config = data.dataset_config_name
        if labels is None:
            table = labelled.choice_table(source, split, config)
            return labelled.read_choices(table, columns)

        table = labelled.classification_table(source, split, config, arrangement=labels.arrangement)
        by_number = labels.label_names_file is not None
        part = labelled.read_classes(table, columns, names, problem=problem, by_number=by_number)
        names = part.label_names
        problem = part.problem_type
        return part

    sets = data.read_sets(read, seed, labelled.hold_out_documents)
    if columns.halve_validation:
        sets["validation"], sets["test"] = labelled.halve_by_document(sets["validation"])
    _check_sets(sets)
    if labels is None or not labels.sigmoid:
        return sets

    train = sets["train"]
    if train.problem_type != SINGLE or len(train.label_names or ()) != 2:
        raise ValueError(
            f"--sigmoid is for two classes, and {train.source} has other labels; leave it out."
        )
    return {name: replace(part, sigmoid=True) for name, part in sets.items()}


def _check_sets(sets: Sets) -> None:
    """Logs the sizes of the sets, and refuses sets without labels or with one class."""
    train = sets["train"]
    learned = set(train.documents())
    for name, part in sets.items():
        documents = part.documents()
        sizes = f"{len(part.examples)} examples, {len(documents)} documents"
        logger.info("%s: %s (%s)", name, sizes, part.source)
        if name != "test" and not part.labelled:
            raise ValueError(f"The {name} set has no labels ({part.source}); give one with labels.")
        shared = learned.intersection(documents)
        if name != "train" and shared:
            logger.warning(
                "%d texts of the %s set are in the training set, too.", len(shared), name
            )

    if train.problem_type == SINGLE and len(train.label_names or ()) == 1:
        raise ValueError(
            f"{train.source} has one class only; give rows of two, or --label_names_file."
        )


# --- Batches


def collate_vectors(
    data: LabelledDocuments, vectors: Mapping[str, torch.Tensor], rows: list[Example]
) -> Batch:
    """Makes a batch of N examples over B distinct documents, each of which the model reads once.

    Args:
        data: the set, for the kind of its labels.
        vectors: chunk vectors ``[n, D]`` of each text.
        rows: the examples. The vector of a question or choice is the mean of its chunk vectors.

    Returns:
        ``document_index [N]``, ``labels``, ``inputs_embeds [B, n, D]``, ``attention_mask [B, n]``,
        and ``pair_embeds [N, D]`` of questions, or ``[N, C, D]`` of choices.
    """
    documents = list(dict.fromkeys(row.text for row in rows))
    index = {text: number for number, text in enumerate(documents)}
    # A tensor with a row per example comes first: `Trainer` takes its length for the batch size.
    batch = {"document_index": torch.tensor([index[row.text] for row in rows])}
    batch |= targets(data, rows)
    if rows[0].asked:
        means = [
            torch.stack([vectors[text].float().mean(dim=0) for text in row.asked]) for row in rows
        ]
        pairs = torch.stack(means)  # [N, C, D]
        if not rows[0].choices:
            pairs = pairs.squeeze(1)
        batch["pair_embeds"] = pairs
    return batch | pad_vectors([vectors[text].float() for text in documents])


def collate_tokens(
    data: LabelledDocuments, tokenizer: PreTrainedTokenizerBase, rows: list[TokenRow]
) -> Batch:
    """Makes a batch of N examples: ``input_ids`` and ``attention_mask`` ``[N, T]``, ``labels``.

    Args:
        data: the set, for the kind of its labels.
        tokenizer: which pads the token ids.
        rows: the examples with their token ids.
    """
    batch = DataCollatorWithPadding(tokenizer)([{"input_ids": ids} for _, ids in rows])
    return {**batch, **targets(data, [example for example, _ in rows])}


def targets(data: LabelledDocuments, rows: list[Example]) -> Batch:
    """Returns the ``labels`` of some rows of a set, if they have any."""
    if rows[0].label is None:
        return {}
    return {"labels": replace(data, examples=rows).targets()}


def token_rows(
    data: LabelledDocuments,
    tokenizer: PreTrainedTokenizerBase,
    limit: int | None,
    *,
    keep_end: bool,
) -> tuple[list[TokenRow], np.ndarray]:
    """Tokenizes documents, each after its question.

    Args:
        data: the set.
        tokenizer: of the encoder.
        limit: the most tokens of a document; a warning counts longer documents.
        keep_end: whether a document that is cut still ends with the last special token.

    Returns:
        The examples with their token ids, and the number of tokens of each document before it was
        cut, ``[N]``.

    Raises:
        ValueError: for a document without a token.
    """
    texts = []
    for row in data.examples:
        if row.question is None:
            texts.append(row.text)
        else:
            texts.append(f"{row.question}\n{row.text}")
    ids = tokenizer(texts, verbose=False)["input_ids"]
    lengths = np.array([len(row) for row in ids])

    if lengths.min() <= tokenizer.num_special_tokens_to_add():
        name = data.examples[int(lengths.argmin())].id
        raise ValueError(
            f"{data.source}: the document of {name!r} contains no token; leave the row out."
        )
    if limit is not None and lengths.max() > limit:
        longer = int((lengths > limit).sum())
        logger.warning(
            f"{data.source}: the first {limit} tokens of documents are read; {longer} are longer."
        )
        for index, row in enumerate(ids):
            ids[index] = row[:limit]
            if keep_end:
                ids[index][-1] = row[-1]
    return list(zip(data.examples, ids, strict=True)), lengths


# --- Models


class MeanClassifier(nn.Module):
    """Avg. SBERT: the classifier of our heads over the plain mean of the chunk vectors.

    Over the first chunk alone, it is the baseline SBERT.

    Args:
        hidden_size: of the chunk vectors.
        outputs: number of logits.
        pair: whether documents come with questions or choices.
        choice: whether these are choices, which gives logits ``[N, C]``.
        problem_type: as in transformers, for the loss.
    """

    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(
        self, hidden_size: int, outputs: int, *, pair: bool, choice: bool, problem_type: str
    ) -> None:
        super().__init__()
        self.choice = choice
        self.problem_type = problem_type
        inputs = hidden_size
        if pair:
            inputs = 2 * hidden_size
        self.classifier = TaskClassifier(inputs, 768, outputs)
        for parameter in self.classifier.parameters():  # as the heads start
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            else:
                nn.init.zeros_(parameter)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Scores documents.

        Args:
            inputs_embeds: chunk vectors ``[B, n, D]``.
            attention_mask: ``[B, n]``.
            pair_embeds: vectors of questions ``[N, D]`` or choices ``[N, C, D]``.
            document_index: the document of each example, ``[N]``.
            labels: as in `NextLevelBertForSequenceClassification`.
        """
        documents = masked_mean(inputs_embeds, attention_mask)  # [B, D]
        features = concatenate_pairs(documents, pair_embeds, document_index)
        logits = self.classifier(features)  # [N, K] or [N, C, 1]
        if self.choice:
            logits = logits.squeeze(-1)
        loss = None
        if labels is not None:
            config = PreTrainedConfig(num_labels=logits.shape[-1], problem_type=self.problem_type)
            loss = classification_loss(logits, labels, config)
        return SequenceClassifierOutput(loss, logits)


@dataclass(kw_only=True)
class TrainingRecipe:
    """What the trainings of all seeds share.

    Args:
        model_type: family of the model.
        rows: the sets, as the model reads them.
        collate: makes a batch of some rows.
        new_model: makes the model at the start of a seed.
        open_trained: opens the model in the folder of a seed to publish it; None for a baseline.
        weights: hash of the weights that a training starts from.
        learning_rate: the usual one.
        trained_parts: options that say what is trained, if it is not everything.
        window: longer documents (in tokens) are scored apart, too; None if that says nothing.
        lengths: number of tokens of each document, by set, if there is a window.
    """

    model_type: str
    rows: dict[str, list[Any]]
    collate: Callable[[list[Any]], Batch]
    new_model: Callable[[], nn.Module]
    open_trained: Callable[[Path], Any] | None
    weights: str
    learning_rate: float
    trained_parts: Mapping[str, object] = field(default_factory=dict)
    window: int | None = None
    lengths: Mapping[str, np.ndarray] = field(default_factory=dict)


def recipe_over_vectors(
    args: FinetuningArguments,
    sets: Sets,
    options: VectorModelArguments,
    adapters: LoraArguments,
) -> TrainingRecipe:
    """Prepares NextLevelBERT, HATE, or a baseline over the vectors of a frozen encoder.

    Args:
        args: of the training.
        sets: by name; their texts are encoded here, once.
        options: of the model.
        adapters: what is trained in place of all weights.
    """
    train = sets["train"]
    is_choice = train.problem_type == "multiple_choice"
    auto_class = AutoClassifier
    baselines = ["avg_sbert", "sbert", "tfidf"]
    if is_choice:
        auto_class = AutoChooser
        baselines.remove("tfidf")
    source = open_source(options, baselines)
    is_baseline = options.model in baselines or source.kind == "other"
    if is_choice and source.kind == "hate":
        raise ValueError("HATE does not support multiple choice. Use a NextLevelBERT for --model.")
    _check_vector_options(args, options, adapters, is_baseline=is_baseline)

    vectors = _encode(args, sets, options, source=source)
    config = head_config(train)
    outputs = 1
    if not is_choice:
        outputs = len(config["id2label"])
        config["text_pair"] = train.examples[0].question is not None
    recipe = TrainingRecipe(
        model_type=source.kind,
        rows={name: data.examples for name, data in sets.items()},
        collate=partial(collate_vectors, train, vectors),
        new_model=partial(
            MeanClassifier,
            hidden_size=next(iter(vectors.values())).shape[1],
            outputs=outputs,
            pair=train.examples[0].question is not None,
            choice=is_choice,
            problem_type=config.get("problem_type", SINGLE),
        ),
        open_trained=None,
        weights=source.weights,
        learning_rate=1e-3,
    )
    if is_baseline:
        return recipe

    def new_whole_model() -> nn.Module:
        model = open_model(options, source, auto_class, **config)
        if adapters.freeze_encoder:
            freeze(model.base_model)
        return model

    recipe.new_model = new_whole_model
    recipe.open_trained = partial(with_chunk_encoder, source, auto_class)
    if adapters.lora:
        recipe.new_model = lambda: with_lora(new_whole_model(), adapters)
        recipe.open_trained = lambda folder: with_chunk_encoder(
            source, auto_class, folder, base=new_whole_model()
        )
        recipe.trained_parts = vars(adapters)
    elif adapters.freeze_encoder:
        recipe.trained_parts = {"freeze_encoder": True}
    else:
        recipe.learning_rate = 5e-5
    return recipe


def _encode(
    args: FinetuningArguments,
    sets: Sets,
    options: VectorModelArguments,
    *,
    source: VectorSource,
) -> dict[str, torch.Tensor]:
    """Encodes all documents, and apart from them all questions: one more question costs little."""
    documents: list[str] = []
    questions: list[str] = []
    for data in sets.values():
        documents += data.documents()
        for example in data.examples:
            questions += example.asked
    vectors = encode_once(options, args, source, texts=documents)
    if questions:
        vectors |= encode_once(options, args, source, texts=questions)
    return vectors


def _check_vector_options(
    args: FinetuningArguments,
    options: VectorModelArguments,
    adapters: LoraArguments,
    *,
    is_baseline: bool,
) -> None:
    is_new = is_baseline or options.model == "untrained"
    if adapters.lora and (is_new or adapters.freeze_encoder):
        raise ValueError("--lora is for a saved checkpoint, without --freeze_encoder.")
    if adapters.lora:
        require_layers(options.model)
    if is_baseline and (adapters.freeze_encoder or args.push_to_hub):
        raise ValueError(
            f"--model {options.model} is a baseline; leave out --freeze_encoder and --push_to_hub."
        )


def recipe_from_text(
    args: FinetuningArguments,
    sets: Sets,
    options: TextModelArguments,
    *sizes: ChunkBertArguments | BertAlArguments,
) -> TrainingRecipe:
    """Prepares ChunkBERT, BERT-AL, or (`truncated`) an encoder that reads the start of documents.

    Args:
        args: of the training.
        sets: by name; their texts are tokenized here.
        options: of the encoder, all of which is trained.
        *sizes: options of the ``--model_type``.
    """
    model_type = options.model_type
    saved_type = model_type_of(options.model)
    is_saved = saved_type == model_type
    if saved_type in MODEL_OPTIONS and not is_saved:
        raise ValueError(
            f"--model is a {saved_type}; to make a {model_type}, give a plain encoder."
        )
    train = sets["train"]
    config = head_config(train)
    for group in sizes:
        config |= {name: value for name, value in vars(group).items() if value is not None}
    if config.pop("keep_attention_dropout", False) and not is_saved:
        config["encoder_config"] = AutoConfig.from_pretrained(options.model).to_dict()

    def new_model() -> nn.Module:
        if is_saved or model_type == "truncated":
            model = AutoClassifier.from_pretrained(
                options.model, ignore_mismatched_sizes=True, **config
            )
        else:
            model_class = AutoClassifier._model_mapping[CONFIG_MAPPING[model_type]]
            model = model_class.from_encoder(options.model, **config)
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return model

    def open_trained(folder: Path) -> nn.Module:
        tokenizer.save_pretrained(str(args.output_dir))
        return AutoClassifier.from_pretrained(folder)

    set_seed(args.seed)  # so that a random part is the same whenever it is hashed
    model = new_model()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    window = usable_positions(getattr(model.config, "encoder_config", model.config))
    limits = {"train": getattr(model.config, "max_training_tokens", None)}
    is_truncated = model_type == "truncated"
    if is_truncated:
        most = min(window or tokenizer.model_max_length, tokenizer.model_max_length)
        limits = dict.fromkeys(sets, most)
    rows = {}
    lengths = {}
    for name, data in sets.items():
        rows[name], lengths[name] = token_rows(
            data, tokenizer, limits.get(name), keep_end=is_truncated
        )

    return TrainingRecipe(
        model_type=model_type,
        rows=rows,
        collate=partial(collate_tokens, train, tokenizer),
        new_model=new_model,
        open_trained=open_trained,
        weights=weights_fingerprint(model),
        learning_rate=3e-5,
        window=min(window or LONG_DOCUMENT, LONG_DOCUMENT),
        lengths=lengths,
    )


def freeze(encoder: nn.Module) -> None:
    """Freezes an encoder while a head is trained: no gradients, no dropout.

    Args:
        encoder: whose configuration, which is saved, keeps its dropout.
    """
    encoder.requires_grad_(requires_grad=False)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def head_config(train: LabelledDocuments) -> dict[str, Any]:
    """Returns the outputs and the kind of problem, as a configuration has them.

    Args:
        train: the training set. With `sigmoid`, the second class is the only output; multiple
            choice has no such fields.
    """
    if train.problem_type == "multiple_choice":
        return {}
    names = train.label_names or ()
    problem_type: str = train.problem_type
    if train.sigmoid:
        names = names[1:]
        problem_type = SEVERAL
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
        "problem_type": problem_type,
    }


# --- The task


def main(words: list[str], task: str = "classification") -> None:
    """Classifies documents, or chooses among answers: reads, trains once per seed, and publishes.

    Args:
        words: of the command line, without ``--task``.
        task: ``"classification"`` or ``"multiple_choice"``.
    """
    # 1. The sets, and what all seeds share.
    parts, columns, data, args = _parse_options(words, task)
    settings: dict[str, object] = {}
    for part in parts:
        settings |= {name: value for name, value in vars(part).items() if name not in _UNSIGNED}
    labels = None
    if task == "classification":
        labels = parts.pop()
    sets = read_sets(columns, data, args.seed, labels=labels)
    options = parts[0]
    settings |= {"task": task, "model": public_name(options.model)}
    for name, documents in sets.items():
        rows = map(vars, documents.examples)
        settings[f"{name} set"] = fingerprint([documents.label_names, *rows])
    if options.model == "tfidf" and task == "classification":
        bind_folder(args.output_dir, settings)
        result = Result(seed=0, scores={})
        for name, logits in labelled.tfidf(sets).items():
            result.scores |= score_and_save(
                args,
                Path(str(args.output_dir)) / "seed-0",
                name=name,
                data=sets[name],
                logits=logits,
            )
        publish_best(args, [result], sets, source="tfidf", recipe=None)
        return

    make_recipe: Callable[..., TrainingRecipe] = recipe_from_text
    if options.model_type in FAMILIES:
        make_recipe = recipe_over_vectors
    recipe = make_recipe(args, sets, *parts)
    if args.learning_rate is None:
        args.learning_rate = recipe.learning_rate
    settings |= {"weights": recipe.weights, **args.result_settings()}

    # 2. A training per seed.
    results = _train(args, sets, recipe, settings=settings)

    # 3. The table, and the model of the best seed with its card.
    if args.should_save:
        publish_best(args, results, sets, source=options.model, recipe=recipe)


main_multiple_choice = partial(main, task="multiple_choice")


def _parse_options(
    words: list[str], task: str
) -> tuple[list[Any], ColumnArguments, DataArguments, FinetuningArguments]:
    """Parses the options of a task and its ``--model_type``; the model's own come first."""
    model_types = list(MODEL_OPTIONS)
    if task == "multiple_choice":
        model_types = ["nextlevelbert"]
    model_type = pop_option(words, "model_type", "nextlevelbert")[0] or ""
    if model_type not in model_types:
        raise ValueError(
            f"--task {task} supports --model_type {', '.join(model_types)}, not {model_type!r}."
        )

    groups = list(MODEL_OPTIONS[model_type])
    if task == "classification":
        groups.append(ClassArguments)
    groups += [ColumnArguments, DataArguments, FinetuningArguments]
    prog = f"--task {task} --model_type {model_type}"
    *parts, columns, data, args = parse(groups, words, prog, about=ABOUT, recipes=f"{task}-")
    return parts, columns, data, args


def _train(
    args: FinetuningArguments, sets: Sets, recipe: TrainingRecipe, settings: dict[str, object]
) -> list[Result]:
    """Trains a model per seed, scores it on all other sets, and writes its predictions."""
    validation = sets["validation"]

    def metrics(output: EvalPrediction) -> Scores:
        return validation.scores(validation.logits(output.predictions))

    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        return CardTrainer(
            model=recipe.new_model(),
            args=seed_args,
            data_collator=recipe.collate,
            train_dataset=recipe.rows["train"],
            eval_dataset=recipe.rows["validation"],
            compute_metrics=metrics,
        )

    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, Scores], Scores]:
        trainer.compute_metrics = None
        scores: dict[str, Scores] = {}
        for name, data in sets.items():
            if name == "train":
                continue
            output = trainer.predict(recipe.rows[name])
            logits = data.logits(output.predictions)
            scores |= score_and_save(
                args, folder, name=name, data=data, logits=logits, recipe=recipe
            )
            if name in scores:
                scores[name]["loss"] = output.metrics["test_loss"]
        return scores, {}

    validated = list(validation.scores_of_most_frequent_label(sets["train"]))
    return seeds.run_seeds(args, settings, make_trainer, score=score, validated=validated)


def score_and_save(
    args: FinetuningArguments,
    folder: Path,
    *,
    name: str,
    data: LabelledDocuments,
    logits: np.ndarray,
    recipe: TrainingRecipe | None = None,
) -> dict[str, Scores]:
    """Writes the predictions of a set to the folder of a seed, and scores them.

    Args:
        args: of the training.
        folder: of a seed.
        name: of the set.
        data: the set.
        logits: ``[N, K]``.
        recipe: of the model; None for word counts.

    Returns:
        Scores of the set by its name, and (``"NAME, long"``) of its long documents; nothing for a
        set without labels.
    """
    if args.should_save:
        folder.mkdir(parents=True, exist_ok=True)
        labelled.write_predictions(folder / f"{name}_predictions.jsonl", data, logits)
    if not data.labelled:
        return {}

    scores = {name: data.scores(logits)}
    if recipe is not None and recipe.window:
        is_long = recipe.lengths[name] > recipe.window
        count = int(is_long.sum())
        if 0 < count < len(is_long):
            about = f"{count} of {len(is_long)} documents over {recipe.window} tokens"
            scores[f"{name}, long ({about})"] = data.scores(logits, rows=is_long)
    return scores


def publish_best(
    args: FinetuningArguments,
    results: list[Result],
    sets: Sets,
    *,
    source: str,
    recipe: TrainingRecipe | None,
) -> None:
    """Prints the results of all seeds, and publishes the model of the best seed with its card.

    Args:
        args: of the training.
        results: one for each seed.
        sets: by name; the test set is reported if it has labels, otherwise the validation set.
        source: the option ``--model``.
        recipe: what was trained; None for word counts.
    """
    reported = "validation"
    if "test" in sets and sets["test"].labelled:
        reported = "test"
    title = public_name(source)
    if recipe is not None and recipe.window:
        title += f" ({recipe.model_type})"

    baselines: dict[str, seeds.Row] = {}
    for name in results[0].scores:
        if name.startswith(f"{reported}, long"):
            scores = [result.scores[name] for result in results]
            baselines[f"{title}, {name}"] = seeds.mean_and_deviation(scores)
    trivial = sets[reported].scores_of_most_frequent_label(sets["train"])
    baselines["most frequent label"] = {**trivial}
    metric = "loss"
    if recipe is None:
        metric = "accuracy"
    best, table = seeds.report(
        args, results, reported, name=title, baselines=baselines, metric=metric
    )

    if recipe is None or recipe.open_trained is None:
        seeds.publish(args, best, open_model=None, card=None)
        return
    card = _card(args, best, sets, reported=reported, source=source, recipe=recipe, table=table)
    seeds.publish(args, best, open_model=recipe.open_trained, card=model_card(**card))


def _card(
    args: FinetuningArguments,
    best: Result,
    sets: Sets,
    *,
    reported: str,
    source: str,
    recipe: TrainingRecipe,
    table: str,
) -> dict[str, Any]:
    """Returns the arguments of `model_card` for the model of the best seed."""
    train = sets["train"]
    classes = [plain(name) for name in train.label_names or ()]
    scores = {metric: value for metric, value in best.scores[reported].items() if metric != "loss"}
    epoch = "last epoch"
    if args.load_best_model_at_end:
        epoch = f"best epoch by {args.metric_for_best_model}"
    chosen = (
        f"This checkpoint is the {epoch} of the seed with the lowest loss (accuracy"
        f" {scores['accuracy']:.4f})."
    )
    if "f1" in scores:
        chosen += f" `f1` is of the class {classes[-1]}."

    without = ""
    if recipe.model_type in FAMILIES:
        without = WITHOUT
    facts = seeds.training_facts(args, best, public_name(source), without=without)
    examples = ", ".join(f"{len(part.examples):,} {name}" for name, part in sets.items())
    model_rows = {"classes": ", ".join(classes)}
    pipeline_tag = "text-classification"
    if train.problem_type == "multiple_choice":
        model_rows = {}
        pipeline_tag = "multiple-choice"

    name = args.repository()
    paper, limit = _CARDS[recipe.model_type]
    return {
        "name": name,
        "summary": f"A {paper} fine-tuned on {plain(train.source)}.",
        "snippet": snippet(name, train, recipe.model_type),
        "model": model_rows,
        "training": {**facts, **recipe.trained_parts, "examples": examples},
        "pictures": {CURVE: "Loss over epochs"},
        "limits": [_SMALL, limit],
        "measured": f"{table}\n\n{chosen}{seeds.caveat(reported, 'the checkpoint')}",
        "pipeline_tag": pipeline_tag,
        "tags": [recipe.model_type, "long-documents"],
        "base_model": name_on_hub(source),
        "dataset": sets[reported].source,
        "scores": scores,
    }


def snippet(name: str, train: LabelledDocuments, model_type: str) -> str:
    """Returns code that opens a model and reads a document, with a question if there are any.

    Args:
        name: of the model.
        train: the training set.
        model_type: family of the model.
    """
    auto_class = "AutoModelForSequenceClassification"
    texts = '["a question about it"]'
    axis = ""
    if train.problem_type == "multiple_choice":
        auto_class = "AutoModelForMultipleChoice"
        texts = '["the question? one answer", "the question? another"]'
        axis = "[None]"
    truncation = ""
    if model_type == "truncated":
        truncation = ", truncation=True"

    lines = [
        "import nextlevelbert  # registers the architecture",
        f"from transformers import {auto_class}, AutoTokenizer",
        "",
        f'model = {auto_class}.from_pretrained("{name}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
        f'document = tokenizer("the text of a whole document", return_tensors="pt"{truncation})',
    ]
    inputs = "**document"
    if train.examples[0].asked and model_type in FAMILIES:
        lines.append(f'pair = tokenizer({texts}, padding=True, return_tensors="pt")')
        inputs += f', pair_input_ids=pair["input_ids"]{axis}'
        inputs += f', pair_attention_mask=pair["attention_mask"]{axis}'
    lines.append(f"scores = model({inputs}).logits")
    return "\n".join(lines)
