"""What all training shares: options and recipes, a Trainer without pickles, folders of a run, cards
and pictures."""

from __future__ import annotations

import argparse
import inspect
import io
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
import yaml
from accelerate import PartialState
from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import get_available_reporting_integrations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)
_PARTS = (
    "*.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state*.pth",
)  # of a checkpoint, beside its state
RECIPES = Path(__file__).with_name("recipes")
# Arguments that decide the result of a training, given the model and the data; a folder belongs to
# their values.
SIGNED = (
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "weight_decay",
    "warmup_steps",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "optim",
    "optim_args",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "bf16",
    "fp16",
    "tf32",
    "seed",
    "data_seed",
    "per_device_train_batch_size",
    "load_best_model_at_end",
)
# These do, too, where the best evaluation is kept.
SIGNED_CHOICE = (
    "eval_strategy",
    "eval_steps",
    "save_strategy",
    "save_steps",
    "metric_for_best_model",
)
# Of transformers' own options, those that the help shows.
SHOWN = {
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "bf16",
    "seed",
    "use_cpu",
    "push_to_hub",
    "hub_model_id",
}
CURVE = "learning_curve.png"
# What the Hub's page of a model offers to try.
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


class _Parser(HfArgumentParser):
    """Tells an error before a line of usage; of the options of `TrainingArguments` the help shows
    those in `SHOWN`."""

    def __init__(self, classes: Sequence[type[Any]], prog: str, about: str) -> None:
        command, usage = Path(sys.argv[0]).name, "%(prog)s [options]"
        prog = f"{command} {prog}".strip()
        epilog = f"Options may come from YAML or JSON: {command} options.yaml --seed 1"
        super().__init__(
            classes, prog=prog, usage=usage, description=about, epilog=epilog, allow_abbrev=False
        )
        bases = {base for kind in classes for base in kind.__mro__ if base is not TrainingArguments}
        shown = {name for base in bases for name in inspect.get_annotations(base)} | SHOWN
        for action in self._actions:
            if action.dest in {option.name for option in fields(TrainingArguments)} - shown:
                action.help = argparse.SUPPRESS
            elif action.default is None:
                action.help = f"{action.help}%(default).0s"  # in place of "(default: None)"
            action.option_strings = action.option_strings[
                :1
            ]  # the spelling that the help shows; all are accepted

    def error(self, message: str) -> NoReturn:
        print(
            f"error: {message}\nusage: {self.prog} [options]; all of them: --help", file=sys.stderr
        )
        raise SystemExit(2)


def parse(
    classes: Sequence[type[Any]],
    words: Sequence[str],
    prog: str = "",
    about: str = "",
    recipes: str | None = None,
) -> tuple[Any, ...]:
    """Dataclasses from the words of a command line; what is wrong ends the program with an error
    before the usage.

    Args:
        classes: dataclasses, whose `_argument_group_name` is the title of their options in the
            help.
        words: of the command line; a YAML or JSON file in front stands for the options that it
            holds.
        prog, about: the options that led here, after the command; the text above the options in the
            help.
        recipes: offers ``--recipe paper``, a file in ``recipes/`` whose name starts so and ends in
            the ``--model_type``. Options beside the recipe win.
    """
    parser = _Parser(classes, prog or (f"--task {recipes[:-1]}" if recipes else ""), about)
    try:
        words = words_of(words)
        if recipes is not None:
            text = (
                "paper: all settings that the paper of the --model_type names; explicit options"
                " win."
            )
            parser.add_argument("--recipe", choices=["paper"], default=argparse.SUPPRESS, help=text)
            usual = [
                option.default
                for kind in classes
                for option in fields(kind)
                if option.name == "model_type"
            ]
            words = _with_recipe(words, recipes, str(*usual))
        if unknown := parser.parse_known_args(words)[1]:
            raise ValueError(f"There is no option {unknown[0]}.")
        return parser.parse_args_into_dataclasses(words, look_for_args_file=False)[: len(classes)]
    except (ValueError, OSError) as error:
        parser.error(str(error))


def take_option(
    words: Sequence[str], name: str, default: str | None = None
) -> tuple[str | None, list[str]]:
    """The value of one option, and the words without it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(
        f"--{name}", f"--{name.replace('_', '-')}", nargs="?", default=default, dest="value"
    )
    known, rest = parser.parse_known_args(words)
    return known.value, rest


def words_of(words: Sequence[str]) -> list[str]:
    """The words of a command line; a YAML or JSON file at its beginning is replaced by the options
    that it holds."""
    if not words or words[0].startswith("-"):
        return list(words)
    path = Path(words[0])
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError(
            f"{words[0]!r} belongs to no option; a file of options ends in .yaml, .yml or .json."
        )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except yaml.YAMLError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} must hold options by name, such as 'seeds: [0, 1]'; got"
            f" {type(values).__name__}."
        )
    return [*_as_words(values), *words[1:]]


def _as_words(values: Mapping[str, Any]) -> Iterable[str]:
    for name, value in values.items():
        if isinstance(value, list):
            yield from (f"--{name}", *map(str, value))
        elif value is not None:
            yield f"--{name}={json.dumps(value) if isinstance(value, (dict, bool)) else value}"


def _with_recipe(words: list[str], recipes: str, usual: str) -> list[str]:
    """The words with those of the recipe in front that they ask for; ``batch_size`` comes by
    accumulation."""
    recipe, rest = take_option(words, "recipe")
    if recipe != "paper":
        return words  # of another one the parser tells
    words = rest
    path = RECIPES / f"{recipes}{take_option(words, 'model_type', usual)[0]}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in RECIPES.glob(f"{recipes}*.yaml")))
        raise ValueError(
            f"--recipe paper: no paper names settings for {path.stem}, only for {known}."
        )
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    if os.environ.get("RANK", "0") == "0":
        print(
            f"The paper's settings ({text.splitlines()[0].lstrip('# ')}): {values}", file=sys.stderr
        )
    if total := values.pop("batch_size", None):
        size = int(take_option(words, "per_device_train_batch_size", "8")[0] or 8)
        steps, left = divmod(total, size * int(os.environ.get("WORLD_SIZE", "1")))
        if left:
            raise ValueError(
                f"The paper's batch of {total} needs a --per_device_train_batch_size that"
                " divides it."
            )
        values |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
    return [*_as_words(values), *words]


def run_command(main: Callable[[list[str]], None], words: Sequence[str] | None = None) -> None:
    """Calls a command's `main` with words, by default this process's; errors of input come without
    a traceback."""
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s")
    try:
        main(list(sys.argv[1:] if words is None else words))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(
            "\nStopped. Start the same command again: it goes on from what is stored.",
            file=sys.stderr,
        )
        sys.exit(130)


@dataclass
class BaseTrainingArguments(TrainingArguments):
    """`TrainingArguments` that suit everything trained here; pretraining and fine-tuning add their
    own defaults."""

    _argument_group_name = "training"

    output_dir: str = field(default="trainer_output", metadata={"help": "Folder of the model."})
    weight_decay: float = field(
        default=0.01, metadata={"help": "Not applied to biases and LayerNorm."}
    )
    resume_from_checkpoint: str | None = field(
        init=False, default=None
    )  # no option: a killed run goes on by itself
    # Not options: whatever sets are given are evaluated, and most of the losses cannot smooth their
    # labels.
    do_eval: bool = field(init=False, default=False)
    do_predict: bool = field(init=False, default=False)
    label_smoothing_factor: float = field(init=False, default=0.0)
    # Uploads at every save would publish arguments with local paths.
    hub_strategy: str = field(default="end", metadata={"help": argparse.SUPPRESS})
    # Processes wait for each other while documents are encoded, which may take days.
    ddp_timeout: int = field(default=7 * 24 * 3600, metadata={"help": argparse.SUPPRESS})
    dataloader_pin_memory: bool = field(default=True, metadata={"help": argparse.SUPPRESS})
    # The collators need columns that the forward pass does not take.
    remove_unused_columns: bool = field(default=False, metadata={"help": argparse.SUPPRESS})

    def __post_init__(self) -> None:
        if not torch.accelerator.is_available():
            self.use_cpu = True  # stated outright, this allows bf16 on a CPU
            self.dataloader_pin_memory = False
        fast = (
            "avx512_bf16",
            "amx_bf16",
            "bf16",
            "sve_bf16",
        )  # instructions for matrices in bfloat16
        if (
            self.bf16
            and self.use_cpu
            and not any(torch.cpu.get_capabilities().get(name) for name in fast)
        ):
            logger.warning(
                "--bf16: this processor has no instructions for bfloat16; float32 is many times"
                " faster."
            )
        super().__post_init__()
        if missing := [
            name for name in self.report_to if name not in get_available_reporting_integrations()
        ]:
            raise ValueError(
                f"--report_to {missing[0]}: its package is not installed; install it, or leave it"
                " out."
            )

    def check_best_metric(self, scores: Sequence[str]) -> None:
        """Refuses a `metric_for_best_model` that no evaluation has, before the first one.

        Args:
            scores: names of the scores of an evaluation, beside its loss.

        Raises:
            ValueError: for another name.
        """
        name = self.metric_for_best_model
        choices = ["loss", *scores]
        if name is not None and name.removeprefix("eval_") not in choices:
            raise ValueError(
                f"--metric_for_best_model {name}: evaluations have no such score; give one of"
                f" {', '.join(choices)}."
            )

    def signature(self) -> dict[str, object]:
        """The arguments that decide the result, given the model and the data, and the rows of an
        optimiser step."""
        values = {
            name: getattr(self, name)
            for name in SIGNED + (SIGNED_CHOICE if self.load_best_model_at_end else ())
        }
        batch = self.train_batch_size * self.gradient_accumulation_steps * self.world_size
        return {
            **{name: getattr(value, "value", value) for name, value in values.items()},
            "batch_size": batch,
        }

    def repository(self) -> str:
        """Name of the model: that of its repository on the Hub, which is made here, or of its
        folder."""
        name = self.hub_model_id or Path(str(self.output_dir)).resolve().name
        if self.push_to_hub and self.should_save:
            name = (
                HfApi(token=self.hub_token)
                .create_repo(name, private=self.hub_private_repo, exist_ok=True)
                .repo_id
            )
        return safe_name(name)

    def upload(self, folder: str | Path, leave: Sequence[str] = ()) -> None:
        """Uploads a folder to `repository`, if that is asked for, without checkpoints and files of
        these patterns."""
        if self.push_to_hub and self.should_save:
            ignored, api = (
                ["checkpoint-*", "_*", "*.tmp", ".tmp*", *leave],
                HfApi(token=self.hub_token),
            )
            api.upload_folder(
                repo_id=self.repository(), folder_path=folder, ignore_patterns=ignored
            )


class SetEpochCallback(TrainerCallback):
    """Tells the training set its epoch also where `Trainer` does not: in several processes, and
    resumed within one."""

    def on_epoch_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        dataset: Any = getattr(train_dataloader, "dataset", None)
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(int(state.epoch or 0))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        best = (
            Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}"
        )  # also in a folder that was moved
        state.best_model_checkpoint = str(best) if best.exists() else None


class CardTrainer(Trainer):
    """`Trainer` that leaves cards and uploads to `model_card` and `upload`, saves no pickle, and
    resumes exactly."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(SetEpochCallback())

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler | None:
        """In the order of the rows, to which predictions belong; the base class may sort them by
        length."""
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that nothing here reads, and that would publish paths of this machine.
        (Path(output_dir or self.args.output_dir) / "training_args.bin").unlink(missing_ok=True)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # the state that is written next tells that all of them are written
        self.accelerator.wait_for_everyone()

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The base class looks only after a step whether it was the last one, or whether the run had
        # been stopped.
        control = self.state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
        if self.state.global_step >= self.state.max_steps or control.get("should_training_stop"):
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> None:
        """Nothing, where `save_model` calls it: what is uploaded has our card."""


def safe_name(name: str) -> str:
    """A name for a heading and for strings of Python code: letters, digits, spaces and ``_ . - / @
    +``, else ``-``."""
    return re.sub(r"[^\w ./@+-]", "-", name)


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Trainable parameters and all of them."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trainable in sizes if trainable), sum(size for size, _ in sizes)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file completely or not at all, or leaves it that holds this; a text gets a line end
    and is UTF-8."""
    data, temporary = (
        content if isinstance(content, bytes) else f"{content}\n".encode(),
        Path(f"{path}.tmp"),
    )
    if not Path(path).exists() or Path(path).read_bytes() != data:
        temporary.write_bytes(data)
        temporary.replace(path)


def read_json(path: str | Path) -> Any | None:
    """What a JSON file holds; None for one that is missing or was cut off."""
    try:
        return json.loads(Path(path).read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def claim(folder: str | Path, settings: Mapping[str, object]) -> None:
    """Makes a folder that of a run with these settings; every process may call it.

    Raises:
        ValueError: for a folder with another run, naming what differs.
    """
    folder, settings = Path(folder), json.loads(json.dumps(settings))
    stored = read_json(folder / "settings.json") or {}
    if stored != settings and (stored or any(folder.glob("checkpoint-*"))):
        names = [name for name in {**stored, **settings} if stored.get(name) != settings.get(name)]
        pairs = ", ".join(
            f"{name}: {stored.get(name)!s:.40} there, {settings.get(name)!s:.40} now"
            for name in names
        )
        raise ValueError(
            f"{folder} holds another run ({pairs}). Give another --output_dir, or remove that"
            " folder."
        )
    if PartialState().is_main_process:
        for leftover in folder.glob(".tmp*"):  # of safetensors, in a run that was killed
            leftover.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        if not stored:
            write_whole(folder / "settings.json", json.dumps(settings, indent=2))


def last_whole_checkpoint(folder: str | Path) -> str | None:
    """The newest ``checkpoint-*`` of a folder that is whole: its state is written last, and any
    file may go first."""
    for path in sorted(
        Path(folder).glob("checkpoint-*"), key=lambda path: -int(path.name.split("-")[1])
    ):
        if read_json(path / "trainer_state.json") is not None and all(
            any(path.glob(part)) for part in _PARTS
        ):
            logger.info("Going on from %s.", path.name)
            return str(path)
        logger.warning("%s is not whole and is ignored.", path)
    return None


# --- Cards, from one template beside this file, and pictures


def plain(text: object) -> str:
    """Text from outside (a label, the name of a file) as Markdown that shows it as it is, on one
    line."""
    return re.sub(r"([\\`*\[\]<>|#!~&])", r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """Text from outside as code on one line, also within a table."""
    line = " ".join(str(text).split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    padding = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def model_card(
    *,
    name: str,
    summary: str,
    snippet: str,
    training: Mapping[str, object],
    measured: str,
    limits: Sequence[str],
    pipeline_tag: str,
    tags: Sequence[str],
    model: Mapping[str, object] | None = None,
    note: str = "",
    training_note: str = "",
    pictures: Mapping[str, str] | None = None,
    base_model: str | None = None,
    scores: Mapping[str, float] | None = None,
    dataset: str = "",
    scored_task: str | None = None,
    widget: Sequence[Mapping[str, object]] = (),
) -> ModelCard:
    """The card of a model, with the metadata that the Hub reads; ``.save("FOLDER/README.md")``
    writes it.

    The values of `training` are shown as code; those of `model`, `summary`, `note`, `training_note`
    and `measured` are markdown, where text from outside goes through `plain` or `code`. `snippet`
    is Python code that the tests run, `pictures` has captions by file name, `limits` a sentence
    each. `scores` of this checkpoint on `dataset` go to the Hub as those of `scored_task` (by
    default `pipeline_tag`); `base_model` is a name there, `widget` inputs to try.
    """
    data = ModelCardData(
        library_name="nextlevelbert",
        pipeline_tag=pipeline_tag,
        tags=[*tags],
        base_model=base_model,
        widget=[dict(example) for example in widget] or None,
    )
    task, name_of_set = scored_task or pipeline_tag, " ".join(dataset.split())
    numbers = {
        metric: round(value, 4) for metric, value in (scores or {}).items() if not math.isnan(value)
    }
    results = [
        EvalResult(task, "custom", name_of_set, metric, value) for metric, value in numbers.items()
    ]
    if results:
        data.model_name, data.eval_results = name, results
    facts = {
        "name": name,
        "summary": summary,
        "snippet": snippet,
        "note": note,
        "model": model or {},
        "training": training,
        "training_note": training_note,
        "pictures": pictures or {},
        "measured": measured,
        "limits": limits,
    }
    template = str(Path(__file__).with_name("card_template.md"))
    return ModelCard.from_template(data, template_path=template, facts=facts, code=code)


def results_table(rows: Mapping[str, Mapping[str, Sequence[float] | float]]) -> str:
    """A markdown table: a row a model, a column a score; pairs are mean ± standard deviation, NaN
    stays empty."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))

    def cell(value: Sequence[float] | float | None) -> str:
        if isinstance(value, Sequence):
            return f"{value[0]:.4f} ± {value[1]:.4f}"
        return "" if value is None or math.isnan(value) else f"{value:.4f}"

    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    lines += [
        f"| {plain(name)} | {' | '.join(cell(row.get(key)) for key in columns)} |"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def plot_curves(
    logs: Sequence[list], metrics: str | Sequence[str] | None, path: str | Path, x: str = "epoch"
) -> None:
    """Loss and scores of the evaluations (as logged after ``eval_``) over epochs or steps, a line a
    seed, as a PNG."""
    from matplotlib.figure import Figure  # no pyplot: a library must not touch a global figure

    names = [metrics] if isinstance(metrics, str) else metrics or ()
    scores = [
        f"eval_{name}"
        for name in names
        if any(f"eval_{name}" in entry for log in logs for entry in log)
    ]
    panels = [("Loss", ["loss", "eval_loss"]), *([("Validation", scores)] if scores else [])]
    figure = Figure(figsize=(4.5 * len(panels), 3.4), layout="constrained")
    for axes, (title, keys) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for color, key in enumerate(keys):
            for number, log in enumerate(logs):
                points = [(entry[x], entry[key]) for entry in log if key in entry]
                style = {
                    "color": f"C{color}",
                    "marker": "" if key == "loss" else "o",
                    "alpha": 0.7,
                    "markersize": 3,
                }
                axes.plot(
                    *np.array(points).reshape(-1, 2).T, label=key if number == 0 else None, **style
                )
        axes.set(xlabel=x, title=title)
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, path)


def plot_by_length(results: Mapping[str, list[dict[str, float]]], path: Path, title: str) -> None:
    """MRR over length, a line for each row of the table, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, rows in results.items():
        ticks = [
            f"{row['from_words']:,.0f}–{row['below_words'] - 1:,.0f}\n({row['queries']:,.0f})"
            for row in rows
        ]
        axes.plot(ticks, [row["mrr"] for row in rows], "o-", label=name, markersize=4)
    axes.set(
        xlabel="words of the longer side (number of queries)",
        ylabel="MRR",
        ylim=(0, 1.02),
        title=title,
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save_figure(figure, path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a picture as a PNG, completely or not at all."""
    figure.savefig(picture := io.BytesIO(), format="png", dpi=120)
    write_whole(path, picture.getvalue())
