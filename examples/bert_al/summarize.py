"""``--task summarization``: BERT-AL learns which sentences of a document make up its summary.

The reported score is the mean of the three evaluations with the lowest loss, as in the paper. Its
baselines read a document at once, without recurrence: ``truncated`` reads the first segment, and
``extended`` the whole document with a longer table of positions.
"""

import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.special import expit
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import (
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ..data.published import cnn_dailymail
from ..data.tables import RowLocation, dataset_rows, open_rows
from ..evaluation.rouge import ROUGE, greedy_oracle, rouge_scores
from ..finetuning.arguments import (
    BertAlArguments,
    FinetuningArguments,
    TextModelArguments,
)
from ..finetuning.seeds import (
    Result,
    ScoredSets,
    Scores,
    publish,
    report,
    reported_set,
    run_seeds,
)
from ..models.bert_al_sentences import encode_sentences, pad_batch, select_sentences, split_document
from ..models.chunk_encoder import weights_fingerprint
from ..models.configuration_nextlevelbert import usable_positions
from ..models.modeling_bert_al import BertAlForExtractiveSummarization
from ..models.pretrained import load_backbone, load_tokenizer
from ..training.cards import CardText, public_name
from ..training.data import DataArguments
from ..training.options import open_config, option, parse, pop_option
from ..training.plots import Log
from ..training.runs import fingerprint, write_json_lines
from ..training.trainer import CardTrainer

logger = logging.getLogger(__name__)

_USUAL_SEGMENT = 128  # tokens
_LOWEST_LOSSES = 3  # evaluations whose mean is reported, as in the paper

_SNIPPET = """from nextlevelbert import BertAlForExtractiveSummarization

model = BertAlForExtractiveSummarization.from_pretrained("{name}")
summary = str(model.summarize("the text of a whole document", {rule}))"""


# --- Options


@dataclass(kw_only=True)
class SummaryArguments(TextModelArguments):
    """The model, the columns of the documents, and the length of a summary."""

    model_type: str = option(
        "bert-al",
        "Model to train: BERT-AL (bert-al), or a baseline. The encoder of truncated reads the first"
        " segment only; extended enlarges the encoder's position table, and the new positions start"
        " at random.",
        choices=["bert-al", "truncated", "extended"],
    )
    text_column: str = option("text", "Column of the documents, texts or lists of sentences.")
    summary_column: str = option(
        "summary", "Column of the reference summaries, texts or lists of sentences."
    )
    label_column: str | None = option(
        None,
        "Column with a list of 0 and 1 for the sentences of each document (default: a greedy oracle"
        " labels the sentences by ROUGE).",
    )
    id_column: str = option("id", "Column of the ids; rows without an id are numbered.")
    summary_sentences: int = option(3, "Sentences per summary.")
    trigram_blocking: bool = option(
        default=False, help="Skip sentences that share three words in a row with a better sentence."
    )

    def __post_init__(self) -> None:
        if self.summary_sentences < 1:
            raise ValueError(
                f"--summary_sentences must be 1 or more, got {self.summary_sentences}."
            )


@dataclass(kw_only=True)
class FirstSegmentArguments:
    """Options of the baselines `truncated` and `extended`: the segment length.

    Recurrence, and the limit on tokens in training, are fixed.
    """

    _argument_group_name = "model"
    segment_length: int | None = option(None, "Tokens of the first segment (default: 128).")
    recurrence: str | None = field(init=False, default="none")
    max_training_tokens: int | None = field(init=False, default=None)


Sizes = BertAlArguments | FirstSegmentArguments


# --- Documents with summaries


class SummarizedDocument(NamedTuple):
    """A document with its reference summary, and a label for each of its sentences.

    Label 1 means that the sentence belongs into the summary.
    """

    id: str
    sentences: list[str]
    reference: list[str]
    labels: list[int]


def read_summaries(
    options: SummaryArguments, source: str, split: str, config: str | None = None
) -> list[SummarizedDocument]:
    """Reads documents with reference summaries from named columns.

    CNN/DailyMail is read as it is on the Hub (``article`` and ``highlights``). Without a column of
    labels, the greedy ROUGE oracle labels the sentences.

    Args:
        options: options that name the columns.
        source: a file, folder or name on the Hub, as `open_rows` accepts it.
        split: split of the folder or dataset.
        config: the configuration of a dataset on the Hub.

    Raises:
        ValueError: for a row that cannot be read, by source, row and column; or if no document
            shares a word with its summary.
    """
    table = open_rows(source, split, config)
    rows = table.rows
    columns = (options.text_column, options.summary_column, options.id_column)
    is_usual = columns == ("text", "summary", "id") and options.label_column is None
    if is_usual and cnn_dailymail.recognises(table.first):
        rows = dataset_rows(cnn_dailymail.load(table), table.name)

    documents: list[SummarizedDocument] = []
    unrelated = 0
    for location, values in tqdm(rows, unit="text", desc=f"sentences of {table.name}", delay=2):
        sentences = sentences_of(
            location, values, column=options.text_column, option="--text_column"
        )
        reference = sentences_of(
            location,
            values,
            column=options.summary_column,
            option="--summary_column",
            by_line=True,
        )
        if options.label_column is None:
            in_summary = greedy_oracle(sentences, reference)
            labels = np.isin(np.arange(len(sentences)), in_summary).astype(int).tolist()
            if not any(labels):
                unrelated += 1
        else:
            labels = location.column(values, options.label_column, "--label_column")
            is_right = isinstance(labels, list) and len(labels) == len(sentences)
            if not is_right or not set(labels) <= {0, 1}:
                raise location.error(
                    options.label_column,
                    f"must be a list of {len(sentences)} labels, 0 or 1, one per sentence.",
                )
        document_id = str(values.get(options.id_column, len(documents)))
        documents.append(
            SummarizedDocument(document_id, sentences, reference=reference, labels=labels)
        )

    if unrelated:
        message = (
            f"{table.name}: {unrelated} of {len(documents)} documents share no word with their"
            " summary."
        )
        if unrelated == len(documents):
            raise ValueError(f"{message} Give sentence labels with --label_column.")
        logger.warning(message)
    return documents


def sentences_of(
    location: RowLocation,
    values: Mapping[str, object],
    column: str,
    option: str,
    by_line: bool = False,
) -> list[str]:
    """Returns the sentences of one column of a row.

    Args:
        location: location of the row, for error messages.
        values: the row.
        column: column of a text, which is split into sentences, or of a list of sentences.
        option: name of the column's option on the command line, for error messages.
        by_line: if true, takes the lines of a text of several lines as its sentences.

    Raises:
        ValueError: if there are no sentences, naming row and column.
    """
    value = location.column(values, column, option)
    if by_line and isinstance(value, str):
        lines = [line for line in value.splitlines() if line.strip()]
        if len(lines) > 1:
            value = lines
    try:
        text, spans = split_document(value)
    except ValueError as error:
        raise location.error(column, str(error)) from error
    return [text[start:end] for start, end in spans]


def tokenized(
    documents: Sequence[SummarizedDocument],
    tokenizer: PreTrainedTokenizerBase,
    limit: int | None,
) -> list[dict[str, Any]]:
    """Encodes documents in BERTSUM's format, and truncates them with a warning.

    Args:
        documents: documents of S sentences each.
        tokenizer: the tokenizer of the encoder.
        limit: most tokens of a document; None for no limit.

    Returns:
        A row for each document: ``document``, its ids and types ``[T]``, and ``labels`` of the
        sentences whose [CLS] is within the limit.
    """
    rows = []
    lost = []
    for document in tqdm(documents, unit="text", desc="tokenizing", delay=2):
        all_ids, all_types = encode_sentences(document.sentences, tokenizer)
        ids = all_ids[:limit]
        types = all_types[:limit]
        lost.append(len(all_ids) - len(ids))
        sentences = int((ids == tokenizer.cls_token_id).sum())
        labels = torch.tensor(document.labels[:sentences])
        rows.append({"labels": labels, "document": (ids, types)})
    if any(lost):
        logger.warning(
            "%d of %d documents lose %d tokens.", np.count_nonzero(lost), len(lost), sum(lost)
        )
    return rows


def collate(rows: Sequence[dict[str, Any]], padding: int) -> dict[str, torch.Tensor]:
    """Pads rows of `tokenized` to a batch.

    Args:
        rows: B rows of `tokenized`.
        padding: id of the padding token.

    Returns:
        ``labels`` ``[B, S]``, -100 after the last sentence, and the tensors of `pad_batch`.
    """
    labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
    return {"labels": labels, **pad_batch([row["document"] for row in rows], padding)}


# --- Models


def with_extended_positions(
    name_or_path: str, learnt: int, total: int
) -> BertAlForExtractiveSummarization:
    """Makes a model that reads a long document at once (the paper's "Baseline-2").

    Args:
        name_or_path: the encoder, a folder or name on the Hub.
        learnt: the number of positions to keep of the encoder; later ones start at random.
        total: the number of tokens to read at once.

    Raises:
        ValueError: for an encoder without a table of positions.
    """
    source = BertAlForExtractiveSummarization.from_encoder(
        name_or_path, segment_length=learnt, recurrence="none"
    )
    encoder_config = source.model.encoder.config
    tables = []
    for name, _ in source.named_parameters():
        if name.endswith("position_embeddings.weight"):
            tables.append(name)
    usable = usable_positions(encoder_config)
    if len(tables) != 1 or usable is None:
        raise ValueError(
            f"--model {name_or_path} is a {encoder_config.model_type}, which has no table of"
            " positions."
        )

    total = max(total, learnt)
    unused = encoder_config.max_position_embeddings - usable  # RoBERTa: up to its padding id
    fields = source.config.to_dict()
    fields["encoder_config"] = encoder_config.to_dict()
    fields["encoder_config"]["max_position_embeddings"] = total + unused
    fields["segment_length"] = total
    fields["tokens_at_once"] = None
    model = BertAlForExtractiveSummarization(type(source.config).from_dict(fields))

    weights = source.state_dict()
    positions = weights.pop(tables[0])[: learnt + unused]
    model.load_state_dict(weights, strict=False)  # all but the table
    with torch.no_grad():
        model.get_parameter(tables[0])[: len(positions)] = positions
    model.tokenizer = source.tokenizer
    return model.eval()


class LowestLosses(TrainerCallback):
    """Keeps the weights of the evaluations with the lowest loss, in ``best/step-N.safetensors``."""

    @staticmethod
    def path(folder: str | Path, step: int) -> Path:
        """Returns the file of the weights at a step."""
        return Path(folder) / "best" / f"step-{step}.safetensors"

    @staticmethod
    def losses_by_step(log: Log) -> dict[int, float]:
        """Returns the lowest losses of a trainer's log by step, in ascending order."""
        losses = []
        for entry in log:
            loss = entry.get("eval_loss", math.nan)
            if math.isfinite(loss):
                losses.append((loss, int(entry["step"])))
        return {step: loss for loss, step in sorted(losses)[:_LOWEST_LOSSES]}

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: object,
    ) -> None:
        if not args.should_save or model is None:
            return
        if state.global_step in self.losses_by_step(state.log_history):
            path = self.path(args.output_dir, state.global_step)
            path.parent.mkdir(exist_ok=True)
            weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
            save_file(weights, path)

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        # Not earlier: a run that resumes from a checkpoint needs the weights that were kept then.
        if not args.should_save:
            return
        folder = Path(args.output_dir)
        lowest = {self.path(folder, step) for step in self.losses_by_step(state.log_history)}
        for path in set(folder.glob("best/*.safetensors")) - lowest:
            path.unlink()


# --- Scores


def score_summaries(
    documents: Sequence[SummarizedDocument], chosen: Sequence[Sequence[int]]
) -> Scores:
    """Scores summaries that are made of sentences of the documents.

    Args:
        documents: the documents with their references.
        chosen: indices of the chosen sentences, for each document.

    Returns:
        The scores of `rouge_scores`, and ``precision``, the share of chosen sentences with label 1.
    """
    summaries = []
    labels = []
    for document, indices in zip(documents, chosen, strict=True):
        summaries.append([document.sentences[index] for index in indices])
        labels += [document.labels[index] for index in indices]
    scores = rouge_scores(summaries, [document.reference for document in documents])
    scores["precision"] = 0.0
    if labels:
        scores["precision"] = float(np.mean(labels))
    return scores


def trivial_summaries(documents: Sequence[SummarizedDocument], sentences: int) -> dict[str, Scores]:
    """Scores summaries without a model: the first sentences, and the greedy oracle's choice.

    Args:
        documents: the documents with their references.
        sentences: most sentences in a summary.

    Returns:
        The scores of `score_summaries` by row of the table.
    """
    first = []
    oracle = []
    for document in documents:
        first.append(list(range(min(sentences, len(document.sentences)))))
        oracle.append(greedy_oracle(document.sentences, document.reference, limit=sentences))
    return {
        f"first {sentences} sentences": score_summaries(documents, first),
        f"oracle, at most {sentences} sentences": score_summaries(documents, oracle),
    }


def prediction_record(
    document: SummarizedDocument, chosen: list[int], logits: np.ndarray
) -> dict[str, object]:
    """Returns the chosen sentences, and a score for every sentence, to be written as JSON."""
    return {
        "id": document.id,
        "indices": chosen,
        "sentences": [document.sentences[index] for index in chosen],
        "scores": expit(logits.astype(float)).round(6).tolist(),
    }


# --- The task


@dataclass
class SummaryRun:
    """Holds what all seeds of a run share.

    Args:
        options: options that describe the model and the summaries.
        sizes: the options of the model type.
        base: the configuration of ``--model``.
        sets: training, validation and perhaps test set, by name.
        rows: the sets, tokenized by `tokenized`.
        tokenizer: the tokenizer of the encoder.
    """

    options: SummaryArguments
    sizes: Sizes
    base: PreTrainedConfig
    sets: Mapping[str, Sequence[SummarizedDocument]]
    rows: Mapping[str, list[dict[str, Any]]]
    tokenizer: PreTrainedTokenizerBase

    @property
    def reported(self) -> str:
        """Returns the name of the set to report on."""
        return reported_set(self.sets)

    def new_model(self) -> BertAlForExtractiveSummarization:
        """Returns the model at the start of a seed."""
        name = self.options.model
        length = {}
        if self.sizes.segment_length is not None:
            length["segment_length"] = self.sizes.segment_length

        if self.options.model_type == "extended":
            documents = [row["document"] for rows in self.rows.values() for row in rows]
            longest = max(len(ids) for ids, _ in documents)
            learnt = length.get("segment_length", _USUAL_SEGMENT)
            model = with_extended_positions(name, learnt=learnt, total=longest)
        elif self.base.model_type == "bert-al":
            model = BertAlForExtractiveSummarization.from_pretrained(
                name, dtype=torch.float32, **length
            )
        else:
            model = BertAlForExtractiveSummarization.from_encoder(
                name, recurrence=self.sizes.recurrence or "residual", **length
            )

        model.config.max_training_tokens = None  # the rows are truncated already
        if self.options.attn_implementation:
            model.set_attn_implementation(self.options.attn_implementation)
        return model

    def make_trainer(self, args: FinetuningArguments) -> CardTrainer:
        """Returns the trainer of one seed."""
        padding = self.tokenizer.pad_token_id or 0
        return CardTrainer(
            model=self.new_model(),
            args=args,
            data_collator=partial(collate, padding=padding),
            train_dataset=self.rows["train"],
            eval_dataset=self.rows["validation"],
            callbacks=[LowestLosses()],
        )

    def score(self, trainer: CardTrainer, folder: Path) -> ScoredSets:
        """Scores the evaluations with the lowest losses, and writes the predictions of the best."""
        losses = LowestLosses.losses_by_step(trainer.state.log_history)
        if not losses:
            raise ValueError("No evaluation has a finite validation loss; lower --learning_rate.")
        trainer.accelerator.wait_for_everyone()  # until the weights are written

        documents = self.sets[self.reported]
        model = trainer.accelerator.unwrap_model(trainer.model)
        scores = {}
        for rank, (step, loss) in enumerate(losses.items(), start=1):
            model.load_state_dict(load_file(LowestLosses.path(folder, step)))
            logits, chosen = self._predict(trainer)
            rouge = score_summaries(documents, chosen)
            scores[f"evaluation {rank}"] = {"step": step, "loss": loss, **rouge}
            if rank == 1:
                trainer.save_model(str(folder))
                if trainer.args.should_save:
                    records = map(prediction_record, documents, chosen, logits)
                    write_json_lines(folder / f"{self.reported}_predictions.jsonl", records)

        means = {}
        for name in (*ROUGE, "precision"):
            means[name] = float(np.mean([row[name] for row in scores.values()]))
        scores["validation"] = {"loss": min(losses.values())}
        scores[self.reported] = scores.get(self.reported, {}) | means
        return scores, {}

    def _predict(self, trainer: CardTrainer) -> tuple[list[np.ndarray], list[list[int]]]:
        """Returns logits and chosen sentences of each document of the reported set."""
        rows = self.rows[self.reported]
        padded = trainer.predict(rows).predictions  # [documents, S]
        logits = []
        chosen = []
        for padded_scores, row, document in zip(
            padded, rows, self.sets[self.reported], strict=True
        ):
            scores = padded_scores[: len(row["labels"])]
            blocked = None
            if self.options.trigram_blocking:
                blocked = document.sentences
            logits.append(scores)
            chosen.append(select_sentences(scores, self.options.summary_sentences, blocked))
        return logits, chosen


def main(argv: list[str]) -> None:
    """Trains a model per seed to select sentences, and publishes the best one."""
    model_type, _ = pop_option(argv, "model_type", "bert-al")
    type_arguments: type[Sizes] = FirstSegmentArguments
    if model_type == "bert-al":
        type_arguments = BertAlArguments
    options, data_args, args, sizes = parse(
        (SummaryArguments, DataArguments, FinetuningArguments, type_arguments),
        argv,
        prog=f"--task summarization --model_type {model_type}",
        about=(
            "Selects the sentences of a summary. Each --model_type has its own options: bert-al,"
            " truncated, extended."
        ),
        recipes="summarization-",
    )
    if args.learning_rate is None:
        args.learning_rate = 2e-5
    base = open_config(options.model)
    _check_model(options, sizes, base=base, args=args)

    # 1. The sets.
    sets = data_args.read_sets(partial(read_summaries, options), seed=args.seed)

    # 2. What the model reads: tokens.
    tokenizer = load_tokenizer(options.model)
    rows = {}
    for name, documents in sets.items():
        limit = _token_limit(name, options, sizes=sizes, base=base)
        rows[name] = tokenized(documents, tokenizer, limit=limit)
    run = SummaryRun(options, sizes, base=base, sets=sets, rows=rows, tokenizer=tokenizer)

    # 3. A training per seed; its scores are means over the evaluations with the lowest loss.
    results = run_seeds(
        args,
        settings=_settings(run, args),
        make_trainer=run.make_trainer,
        score=run.score,
    )
    if not args.should_save:
        return
    for weights in Path(args.output_dir).glob("seed-*/best"):
        shutil.rmtree(weights)

    # 4. The table.
    best, table = report(
        args,
        results=results,
        reported=run.reported,
        name=f"{public_name(options.model)} ({options.model_type})",
        baselines=trivial_summaries(sets[run.reported], options.summary_sentences),
    )

    # 5. The model of the best seed with its card; of a baseline, its predictions alone.
    if options.model_type == "bert-al":
        _publish(run, args, data_args.dataset_name, best=best, table=table)


def _check_model(
    options: SummaryArguments,
    sizes: Sizes,
    base: PreTrainedConfig,
    args: FinetuningArguments,
) -> None:
    """Refuses options that contradict the model."""
    if base.model_type == "bert-al" and sizes.recurrence is not None:
        raise ValueError(
            f"--model {options.model} is a BERT-AL already: leave out --recurrence and"
            " --model_type."
        )
    if base.model_type != "bert-al" and hasattr(base, "encoder_config"):
        raise ValueError(
            f"--model takes a BERT, or a saved BERT-AL, and {options.model} is a {base.model_type}."
        )
    if args.push_to_hub and options.model_type != "bert-al":
        raise ValueError(
            f"--model_type {options.model_type} is a baseline, which is not published; leave out"
            " --push_to_hub."
        )


def _token_limit(
    name: str, options: SummaryArguments, sizes: Sizes, base: PreTrainedConfig
) -> int | None:
    """Returns the number of tokens read of each document of the set `name`; None for all."""
    if options.model_type == "truncated":
        return sizes.segment_length or _USUAL_SEGMENT
    if name != "train":
        return None
    return sizes.max_training_tokens or getattr(base, "max_training_tokens", None)


def _settings(run: SummaryRun, args: FinetuningArguments) -> dict[str, object]:
    """Returns the settings that decide the result."""
    if run.base.model_type == "bert-al":
        weights = weights_fingerprint(run.new_model())
    else:
        weights = weights_fingerprint(load_backbone(run.options.model))
    settings = {
        "task": "summarization",
        "weights": weights,
        **vars(run.options),
        **vars(run.sizes),
        "model": public_name(run.options.model),
        **args.result_settings(),
    }
    for name, documents in run.sets.items():
        settings[f"{name} set"] = fingerprint(documents)
    return settings


def _publish(
    run: SummaryRun,
    args: FinetuningArguments,
    data_name: str | None,
    best: Result,
    table: str,
) -> None:
    """Publishes the best model with its card."""
    options = run.options
    rule = f"sentences={options.summary_sentences}"
    if options.trigram_blocking:
        rule += ", trigram_blocking=True"
    settings = {"summaries": rule, "sentence labels": "of the greedy ROUGE oracle"}
    if options.label_column is not None:
        settings["sentence labels"] = options.label_column
    for name, documents in run.sets.items():
        settings[f"{name} set"] = f"{len(documents)} documents"

    text = CardText(
        summary=(
            "This model is a BERT-AL. It selects the sentences of a document, of any length, that"
            " make up its summary."
        ),
        intended_use="It makes extractive summaries of texts like those that it was trained on.",
        measured=(
            f"`summarize(..., {rule})` summarized the {run.reported} set. The scores are F1 of"
            " ROUGE (words of a to z are stemmed; rougeL compares whole summaries), and precision,"
            " the share of chosen sentences with label 1. The first row is the mean of the"
            " evaluations with the lowest validation loss, at most three; this checkpoint is the"
            " best of them."
        ),
        limits=(
            "Whole sentences are copied, so a pronoun may lose what it refers to.",
            (
                "Information flows forward only: a sentence is scored without the segments after"
                " its own."
            ),
            "The model learned from the summaries of one kind of text.",
        ),
        snippet=_SNIPPET.replace("{rule}", rule),
        pipeline_tag="summarization",
        tags=("bert-al", "long-documents", "extractive-summarization"),
        caption="Loss over epochs",
    )

    # The scores of this checkpoint, not the means.
    published = replace(best, scores={run.reported: best.scores["evaluation 1"]})
    publish(
        args,
        text,
        published,
        open_model=BertAlForExtractiveSummarization.from_pretrained,
        reported=run.reported,
        table=table,
        model=options.model,
        model_type="bert-al",
        settings=settings,
        metrics=ROUGE,
        data_name=data_name,
        chosen=["the evaluation"],
    )
