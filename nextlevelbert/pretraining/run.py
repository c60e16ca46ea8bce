"""Holds the steps that all pretrainings share: a finished run, resuming, and results."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..training.runs import last_whole_checkpoint, read_json, write_whole
from ..training.trainer import CardTrainer
from .arguments import PretrainingArguments

_TIMES = ("_runtime", "_per_second")


def is_finished(args: PretrainingArguments) -> bool:
    """Returns whether the output folder holds a finished run, which is uploaded if asked for."""
    output = Path(args.output_dir)
    if read_json(output / "results.json") is None:
        return False
    args.upload(output)
    print(
        f"{output} is finished already: nothing to do. Give another --output_dir for another run."
    )
    return True


def train_or_resume(trainer: CardTrainer) -> None:
    """Trains from the beginning, or from the last whole checkpoint of the output folder."""
    checkpoint = last_whole_checkpoint(str(trainer.args.output_dir))
    if checkpoint is not None:
        trainer.args.eval_on_start = False  # otherwise the log would have one evaluation more
    trainer.train(resume_from_checkpoint=checkpoint)


def write_results(
    args: PretrainingArguments,
    log: Iterable[Mapping[str, float]],
    results: Mapping[str, object],
) -> None:
    """Writes ``results.json``, the mark of a finished run, as the last file; uploads the folder.

    Args:
        args: training arguments.
        log: log of the trainer; entries that differ from run to run are left out.
        results: further results to write beside the log.
    """
    entries = []
    for entry in log:
        if "train_loss" in entry:  # the summary at the end
            continue
        entries.append({name: value for name, value in entry.items() if not name.endswith(_TIMES)})
    output = Path(args.output_dir)
    content = json.dumps({**results, "log": entries}, indent=2, sort_keys=True)
    write_whole(output / "results.json", content)
    args.upload(output)
