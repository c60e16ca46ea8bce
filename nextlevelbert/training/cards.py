"""Model cards: every card is `CardFacts` rendered by the one template beside this file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData
from transformers import TrainingArguments

_TEMPLATE = Path(__file__).with_name("card_template.md")

# What the Hub's page of a model offers to try, as the widgets of these tasks take it.
SIMILARITY_WIDGET = (
    {
        "source_sentence": "The captain paced the deck and cursed the calm.",
        "sentences": [
            "For three weeks no wind had filled the sails, and the crew spoke of nothing but water.",
            "The parliament adjourned after a long debate about the price of corn.",
            "She set the kettle on the stove and waited for her sister's letter.",
        ],
    },
)
SUMMARY_WIDGET = (
    {
        "text": "The town opened its new bridge on Monday. It cost nine million and took four years to build. A brass "
        "band played in the rain. The old bridge, which floods had closed twice, will be taken down in May."
    },
)
QUESTION_WIDGET = (
    {
        "text": "Who built the bridge that was opened on Monday?",
        "context": "The town opened the Mill Bridge on Monday. The Mill Bridge was built by Ada Miller.",
    },
)


@dataclass(frozen=True)
class CardText:
    """What a card says of a kind of model, whatever it was trained on.

    Attributes:
        name: of the kind, a link to its paper.
        reads: a sentence: what it reads.
        limits: a sentence each.
        tags: for the Hub.
        settings: of the model, worth telling.
        uncounted: follows the number of parameters, where some are left out.
        base_arguments: further arguments of ``from_pretrained`` that open the base checkpoint of an adapter.
    """

    name: str
    reads: str
    limits: Sequence[str]
    tags: Sequence[str]
    settings: Mapping[str, object] = field(default_factory=dict)
    uncounted: str = ""
    base_arguments: str = ""


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """Everything that one model card tells.

    What comes from outside, such as labels and names of files, goes through `plain` or `code` where a field is
    markdown.

    Attributes:
        name: of the model: its repository on the Hub, or its folder, as `safe_name` writes it.
        summary: what the model is, what it reads and what it was trained for.
        snippet: Python code that opens and uses it.
        note: markdown after the snippet.
        model: what the model is made of, by name; the values are markdown.
        training: what it was trained on and how, by name; the values are shown as code.
        training_note: markdown after that table.
        pictures: captions by file name, of pictures of the training; the files lie beside the card.
        measured: markdown: what was measured on which data, and the table of results.
        limits: a sentence each.
        pipeline_tag: the Hub's name of the task.
        tags: for the Hub.
        adapter: whether the folder holds a LoRA adapter in place of a whole model.
        base_model: what the training started from, where that has a name on the Hub.
        scores: of this checkpoint, for the Hub's leaderboards; those that are not numbers are left out.
        dataset: what these were measured on.
        scored_task: the Hub's name of the task that these measure; `pipeline_tag` by default.
        scored_task_name: the same in words.
        widget: inputs that the Hub's page offers to try, with the fields that its widget for `pipeline_tag` takes.
    """

    name: str
    summary: str
    snippet: str
    measured: str
    limits: Sequence[str]
    pipeline_tag: str
    tags: Sequence[str]
    training: Mapping[str, object]
    model: Mapping[str, object] = field(default_factory=dict)
    note: str = ""
    training_note: str = ""
    pictures: Mapping[str, str] = field(default_factory=dict)
    adapter: bool = False
    base_model: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    dataset: str = ""
    scored_task: str | None = None
    scored_task_name: str | None = None
    widget: Sequence[Mapping[str, object]] = ()


def plain(text: object) -> str:
    """Text from outside (a label, the name of a file) as Markdown that shows it as it is, on one line."""
    return re.sub(r"([\\`*\[\]<>|#!~&])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """Text from outside as code on one line, also within a table."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    padding = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def safe_name(name: str) -> str:
    """A name for a heading and for strings of Python code: letters, digits, spaces and ``_ . - / @ +``, else ``-``."""
    return re.sub(r"[^\w ./@+-]", "-", name)


def write_card(folder: str | Path, facts: CardFacts) -> ModelCard:
    """Writes ``README.md`` into `folder`, with the metadata that the Hub reads."""
    data = ModelCardData(
        license="apache-2.0",
        library_name="peft" if facts.adapter else "nextlevelbert",
        pipeline_tag=facts.pipeline_tag,
        tags=[*facts.tags, *(["lora"] if facts.adapter else [])],
        base_model=facts.base_model,
        widget=[dict(example) for example in facts.widget] or None,
    )
    results = [
        EvalResult(
            task_type=facts.scored_task or facts.pipeline_tag,
            task_name=facts.scored_task_name,
            dataset_type="custom",
            dataset_name=" ".join(facts.dataset.split()),
            metric_type=metric,
            metric_value=round(value, 4),
        )
        for metric, value in facts.scores.items()
        if not math.isnan(value)
    ]
    if results:
        data.model_name, data.eval_results = facts.name, results
    card = ModelCard.from_template(data, template_path=str(_TEMPLATE), facts=facts, code=code)
    card.save(Path(folder) / "README.md")
    return card


def repository(args: TrainingArguments) -> str:
    """Name of the model: that of its repository on the Hub, which is created here, or of its folder."""
    name = Path(str(args.output_dir)).name
    if args.push_to_hub:
        api = HfApi(token=args.hub_token)
        name = api.create_repo(args.hub_model_id or name, private=args.hub_private_repo, exist_ok=True).repo_id
    return name


def upload(args: TrainingArguments, name: str, unpublished: Sequence[str]) -> None:
    """Uploads the output folder to the repository `name`, if that was asked for; files of these patterns stay."""
    if args.push_to_hub:
        HfApi(token=args.hub_token).upload_folder(
            repo_id=name, folder_path=args.output_dir, ignore_patterns=list(unpublished)
        )
