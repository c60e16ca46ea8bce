"""Model cards, from the template beside this file, and their tables.

A training writes its card with `collect_card`: the task gives a `CardText` (summary, intended use,
how it was measured, limits, and the code that opens a model) and a `RunReport` (settings and
scores); the other values come from the training arguments. `model_card` makes the card of a model
that was not trained.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..models.model_names import MINILM, full_name
from .arguments import BaseTrainingArguments
from .plots import CURVE, Log
from .runs import safe_name

# The arguments that every card of a training shows.
_SHOWN = ("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay")
_TEMPLATE = Path(__file__).with_name("card_template.md")
# Inputs that the Hub's page of a model offers to try.
SIMILARITY_WIDGET = (
    {
        "source_sentence": "The captain paced the deck and cursed the calm.",
        "sentences": [
            (
                "For three weeks no wind had filled the sails, and the crew spoke of nothing but"
                " water."
            ),
            "The parliament adjourned after a long debate about the price of corn.",
        ],
    },
)
# A card calls a model by the name of its family.
FAMILY_NAMES = {
    "nextlevelbert": "[NextLevelBERT](https://arxiv.org/abs/2402.17682)",
    "hate": "HATE (Hierarchical Attention-based Text Encoder)",
    "chunkbert": "[ChunkBERT](https://arxiv.org/abs/2310.20558)",
    "truncated": "plain encoder",
}
# Tags of models whose documents have vectors, beside the family.
VECTOR_TAGS = ("long-documents", "sentence-transformers", "feature-extraction")
# Opens a model for the vectors of documents.
VECTOR_SNIPPET = """\
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["the text of a whole book", "and of another one"])"""
# BibTeX of the papers, by family. No command here makes a CDLM; its sample card quotes the entry.
CITATIONS = {
    "nextlevelbert": """\
@inproceedings{czinczoll2024nextlevelbert,
  title = {NextLevelBERT: Masked Language Modeling with Higher-Level Representations for
           Long Documents},
  author = {Czinczoll, Tamara and Hönes, Christoph and Schall, Maximilian and de Melo, Gerard},
  booktitle = {Proceedings of ACL},
  year = {2024},
  url = {https://arxiv.org/abs/2402.17682}
}""",
    "hate": """\
@misc{moldovan-hate,
  title = {Hierarchical Attention-based Text Encoder (HATE)},
  author = {Moldovan, Marco},
  url = {https://github.com/marcomoldovan/hierarchical-language-modeling}
}""",
    "bert-al": """\
@misc{zhang2019bertal,
  title = {BERT-AL: BERT for Arbitrarily Long Document Understanding},
  author = {Zhang, Ruixuan and Wei, Zhuoyu and Shi, Yu and Chen, Yining},
  year = {2019},
  note = {Submitted to ICLR 2020},
  url = {https://openreview.net/forum?id=SklnVAEFDB}
}""",
    "chunkbert": """\
@misc{jaiswal2023breaking,
  title = {Breaking the Token Barrier: Chunking and Convolution for Efficient Long Text
           Classification with BERT},
  author = {Jaiswal, Aman and Milios, Evangelos},
  year = {2023},
  url = {https://arxiv.org/abs/2310.20558}
}""",
    "cdlm": """\
@misc{caciularu2021cdlm,
  title = {CDLM: Cross-Document Language Modeling},
  author = {Caciularu, Avi and Cohan, Arman and Beltagy, Iz and Peters, Matthew E. and
            Cattan, Arie and Dagan, Ido},
  year = {2021},
  url = {https://arxiv.org/abs/2101.00406}
}""",
}


@dataclass(kw_only=True)
class CardText:
    """Holds the sentences and code that a task adds to the cards of its models.

    Args:
        summary: description of the model, in Markdown.
        measured: explanation of how the scores were measured, in Markdown; the table of scores
            follows.
        limits: limits of the model, a sentence each.
        snippet: Python code that opens a model; ``{name}`` stands for its name. The tests run it.
        pipeline_tag: the Hub's name of the task.
        tags: tags for the Hub.
        intended_use: uses that the model is meant for, in Markdown.
        note: Markdown after the snippet; ``{name}`` stands for the name of the model.
        training_note: Markdown after the values of the training, for cards of models whose command
            does not say all, such as the files; the commands leave it empty.
        scored_task: the Hub's name of the task that was scored (default: `pipeline_tag`).
        widget: inputs to try on the Hub.
        caption: caption of the learning curve.
    """

    summary: str
    measured: str
    limits: Sequence[str]
    snippet: str
    pipeline_tag: str
    tags: Sequence[str]
    intended_use: str = ""
    note: str = ""
    training_note: str = ""
    scored_task: str | None = None
    widget: Sequence[Mapping[str, object]] = ()
    caption: str = "Loss and scores over the training"


@dataclass(kw_only=True)
class RunReport:
    """Holds the values and scores of a model that its card shows.

    Args:
        training: values of the training, such as the sizes of the sets, which are shown as code;
            `collect_card` leaves out values that are None.
        model_rows: rows about the model, in Markdown.
        table: table of the scores, in Markdown.
        scores: scores of this checkpoint on `dataset`, for the Hub.
        dataset: name of the data that the scores were measured on.
        citation: BibTeX entries.
        base_model: Hub name of the model that the training started from; None for a folder.
        log: log of the trainer, which has the number of steps.
    """

    training: Mapping[str, object]
    model_rows: Mapping[str, object] = field(default_factory=dict)
    table: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    dataset: str = ""
    citation: str = ""
    base_model: str | None = None
    log: Log = ()


def plain(text: object) -> str:
    """Returns text from outside as Markdown that shows the text as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|#!~&])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """Returns text from outside as Markdown's code on one line, also within a table.

    Args:
        text: any value, such as the value of an option; a float gets at most six digits.
    """
    if isinstance(text, float):
        text = f"{text:g}"
    line = " ".join(str(text).split()).replace("|", "\\|")
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    if not line or line.startswith("`") or line.endswith("`"):
        line = f" {line} "
    return f"{fence}{line}{fence}"


def collect_card(args: BaseTrainingArguments, text: CardText, report: RunReport) -> ModelCard:
    """Makes the card of a model that was trained, with its learning curve.

    Args:
        args: training arguments: name, licence, languages and data sets, and the values that the
            card shows.
        text: sentences and code of the task.
        report: values and scores of the training. A value with the name of an argument replaces
            the argument's value.
    """
    named = {name: value for name, value in report.training.items() if value is not None}
    steps = max((int(entry["step"]) for entry in report.log), default=0)
    return model_card(
        text,
        replace(report, training={**named, **training_rows(args, steps), **named}),
        name=args.repository(),
        pictures=[CURVE],
        license=args.license,
        language=args.language,
        datasets=args.datasets,
    )


def training_rows(args: BaseTrainingArguments, steps: int) -> dict[str, object]:
    """Returns the rows about the training that every card has: its arguments, and the machine."""
    precision = "fp32"
    if args.bf16:
        precision = "bf16"
    elif args.fp16:
        precision = "fp16"

    duration = "num_train_epochs"
    if args.max_steps > 0:  # then transformers does not read the number of epochs
        duration = "max_steps"

    values = args.result_settings()
    return {
        **{name: values[name] for name in (*_SHOWN, duration, "batch_size")},
        "optimizer_steps": steps,
        "seed": args.seed,
        "precision": precision,
        "device": f"{args.device.type}, {args.world_size} process(es)",
    }


def public_name(model: str) -> str:
    """Returns the name of a model in tables and cards, which is never a local path."""
    if Path(model).exists():
        return safe_name(Path(model).resolve().name)
    return safe_name(model)


def name_on_hub(name: str) -> str | None:
    """Returns the name of a model on the Hub; None for a folder."""
    if name == "minilm":
        return MINILM
    if Path(full_name(name)).exists():
        return None
    return name


def model_card(
    text: CardText,
    report: RunReport,
    *,
    name: str,
    pictures: Sequence[str] = (),
    **metadata: Any,
) -> ModelCard:
    """Makes the card of a model, with the metadata that the Hub reads.

    Text from outside must go through `plain` or `code`, except in `name` and in the `training` and
    `dataset` of the report.

    Args:
        text: sentences and code of the task.
        report: values and scores of the model.
        name: name of the model.
        pictures: files of pictures, which get the caption of `text`.
        **metadata: further fields of the Hub's `ModelCardData`, such as ``license``.

    Returns:
        The card; ``card.save("FOLDER/README.md")`` writes it.
    """
    data = ModelCardData(
        library_name="nextlevelbert",
        pipeline_tag=text.pipeline_tag,
        tags=list(text.tags),
        widget=list(text.widget) or None,
        base_model=report.base_model,
        **metadata,
    )

    results = []
    for metric, value in report.scores.items():
        if not math.isnan(value):
            result = EvalResult(
                task_type=text.scored_task or text.pipeline_tag,
                dataset_type="custom",
                dataset_name=" ".join(report.dataset.split()),
                metric_type=metric,
                metric_value=round(value, 4),
            )
            results.append(result)

    if results:
        data.model_name = name
        data.eval_results = results

    return ModelCard.from_template(
        data,
        template_path=str(_TEMPLATE),
        text=text,
        name=name,
        report=report,
        pictures=pictures,
        code=code,
    )


def results_table(rows: Mapping[str, Mapping[str, Sequence[float] | float]]) -> str:
    """Returns a table in Markdown, with a row for each model and a column for each score.

    Args:
        rows: model → its scores by name. Pairs are mean ± standard deviation; integers are counts;
            NaN leaves a cell empty.
    """
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [f"| | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for name, row in rows.items():
        cells = [_cell(row.get(column)) for column in columns]
        lines.append(f"| {plain(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: Sequence[float] | float | None) -> str:
    if isinstance(value, Sequence):
        mean, deviation = value
        return f"{mean:.4f} ± {deviation:.4f}"
    if isinstance(value, int):
        return f"{value:,}"
    if value is None or math.isnan(value):
        return ""
    return f"{value:.4f}"
