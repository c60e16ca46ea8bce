"""Going on with what was killed: a folder belongs to its settings, and a checkpoint that is not whole is not used."""

from __future__ import annotations

import json
import logging
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import TrainingArguments

from ..data._files import FolderLock
from .cards import repository, upload

logger = logging.getLogger(__name__)

SETTINGS = "settings.json"
_FINISHED = "finished"  # stored with the settings of a run, at its end
_ADAPTER = "adapter_model.safetensors"
_SECONDS_OF_WORKERS = 8.0  # those of a DataLoader outlive their killed process by up to 5 seconds, with its lock
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", _ADAPTER)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file completely or not at all, whenever the process is killed; a text gets a line end and is UTF-8."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    partial.replace(path)


def read_whole(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None for a file that is not there, or that is empty or cut off, which is logged."""
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    logger.warning("%s is ignored: %s.", path, unreadable(path) or f"{path.name} holds no JSON object")
    return None


# --- Settings


def check_settings(folder: Path, settings: Mapping[str, object]) -> bool:
    """Refuses a folder that holds a run with other settings; returns whether `store_settings` called it finished.

    Settings that an older release did not store are taken for the same, which is logged. So are all of them where the
    user has put ``{}`` into ``settings.json``: a run of a release that stored none is gone on with in this way.

    Raises:
        ValueError: naming what differs; or if the settings of what is in the folder are missing or cannot be read.
    """
    path = folder / SETTINGS
    begun = [*folder.glob("checkpoint-*"), *folder.glob("*.safetensors"), *folder.glob("result.json")]
    if begun and (reason := unreadable(path)):
        known = f" If you know that they are the same, put {{}} into {path}." if not path.exists() else ""
        raise ValueError(
            f"{folder} holds a run whose settings are lost ({reason}), so it cannot be checked that they are the "
            f"same. Give another --output_dir, or remove that folder.{known}"
        )
    theirs = read_whole(path)
    if theirs is None:
        return False
    # A release that stored no settings wrote these in this order, the card last.
    whole = all((folder / name).exists() for name in ("train_results.json", "model.safetensors", "README.md"))
    finished = bool(theirs.pop(_FINISHED, whole and not theirs))
    if finished and (reason := damaged_weights(folder)):
        logger.warning("%s was finished, but %s; it is made again.", folder, reason)
        finished = False
    ours = json.loads(json.dumps(settings))
    if different := [key for key, value in theirs.items() if ours.get(key) != value]:
        pairs = ", ".join(f"{key}: {_short(theirs[key])} there, {_short(ours.get(key))} now" for key in different)
        raise ValueError(
            f"{folder} holds a run with other settings ({pairs}). Give another --output_dir, or remove that folder."
        )
    if unknown := [key for key in ours if key not in theirs]:
        logger.warning("%s does not tell %s; taken for the same.", path, ", ".join(unknown))
    return finished


def begin(args: TrainingArguments, settings: Mapping[str, object]) -> bool:
    """Makes the output folder that of a run with these settings; False if that run is finished already.

    Every process calls this.

    Raises:
        ValueError: as `check_settings`; or if another run is training in the folder.
    """
    folder = Path(str(args.output_dir))
    with only_run_in(folder) if args.should_save else nullcontext():
        finished = check_settings(folder, settings)
        if args.should_save and not finished:
            store_settings(folder, settings)
    if finished:
        logger.info("Finished already; nothing to do. For another run, give another --output_dir.")
        if args.push_to_hub and args.should_save:
            upload(args, repository(args), ["checkpoint-*", "_*", ".tmp*"])
    return not finished


def finish(args: TrainingArguments, settings: Mapping[str, object]) -> None:
    """Marks the run in the output folder as finished, once everything is written and uploaded."""
    if args.should_save:
        store_settings(Path(str(args.output_dir)), settings, finished=True)


def store_settings(folder: Path, settings: Mapping[str, object], finished: bool = False) -> None:
    """Stores the settings of a run in its folder: before anything else, and again once everything is written."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / SETTINGS, json.dumps({**settings, **({_FINISHED: True} if finished else {})}, indent=2))


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Keeps other runs from training in a folder at the same time: each would remove the other's checkpoints.

    Raises:
        ValueError: if another run is training there.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        end = time.monotonic() + _SECONDS_OF_WORKERS
        while not lock.try_alone():
            if time.monotonic() > end:
                raise ValueError(
                    f"Another run is training in {folder}. Wait for its end, or give another --output_dir."
                )
            time.sleep(0.1)
        yield
    finally:
        lock.close()


def _short(value: object) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)


# --- Checkpoints


def last_whole_checkpoint(args: TrainingArguments) -> str | None:
    """The newest ``checkpoint-*`` in the output folder that is whole; warns of newer ones that are not."""
    folder = Path(str(args.output_dir))
    numbered = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    for path in sorted(numbered, key=lambda path: -int(path.name.removeprefix("checkpoint-"))):
        reason = damage(path, args)
        if reason is None:
            return str(path)
        logger.warning("%s is not whole and is ignored: %s.", path, reason)
    if numbered:
        logger.warning("There is no whole checkpoint in %s: training starts anew.", folder)
    return None


def damage(checkpoint: Path, args: TrainingArguments) -> str | None:
    """What is missing in a checkpoint or cannot be read; None if training can go on from it as if never stopped.

    Args:
        checkpoint: the folder; if the best checkpoint is to be loaded at the end, that one is looked at, too.
        args: of the training that is to go on.
    """
    if not checkpoint.is_dir():
        return "there is no such folder"
    for file in sorted(checkpoint.iterdir()):
        if reason := unreadable(file):
            return reason
    names = {path.name for path in checkpoint.iterdir()}
    needed = ["trainer_state.json", *(["scaler.pt"] if args.fp16 else [])]
    # FSDP and DeepSpeed write weights and optimizer under names of their own.
    if "optimizer.bin" not in names and not any(path.is_dir() for path in checkpoint.iterdir()):
        needed += ["optimizer.pt", "scheduler.pt"]
        if reason := damaged_weights(checkpoint):
            return reason
    if missing := [name for name in needed if name not in names]:
        return f"{missing[0]} is missing"
    if reason := _damaged_random_states(checkpoint, args.world_size):
        return reason
    state = read_whole(checkpoint / "trainer_state.json")
    if state is None:
        return "trainer_state.json holds no state"
    if (best := state.get("best_model_checkpoint")) and args.load_best_model_at_end:
        folder = checkpoint.parent / Path(best).name  # the whole output folder may have been moved
        if reason := damaged_weights(folder):
            return f"in its best checkpoint, {folder.name}, {reason}"
    return None


def damaged_weights(folder: Path) -> str | None:
    """What is missing in the weights of a model or an adapter, unreadable, or not what was saved; else None."""
    found = next((name for name in _WEIGHTS if (folder / name).exists()), None)
    if found is None:
        return f"{_WEIGHTS[0]} is missing"
    files = [found]
    if found.endswith(".index.json"):
        if reason := unreadable(folder / found):
            return reason
        files = sorted(set(json.loads((folder / found).read_text())["weight_map"].values()))
    elif found == _ADAPTER:
        files.append("adapter_config.json")
    for name in files:
        if reason := unreadable(folder / name):
            return reason
    return None


def _damaged_random_states(checkpoint: Path, processes: int) -> str | None:
    """One file of a single process, or one of each of several; another number of processes is only told."""
    names = {path.name for path in checkpoint.glob("rng_state*.pth")}
    written_by = 1 if "rng_state.pth" in names else len(names)
    wanted = {"rng_state.pth"} if written_by == 1 else {f"rng_state_{number}.pth" for number in range(written_by)}
    if not names:
        return "rng_state.pth is missing"
    if missing := sorted(wanted - names):
        return f"{missing[0]} is missing"
    if written_by != processes:
        logger.warning(
            "%s was written by %d process(es) and is read by %d: what is drawn at random, such as dropout, is not "
            "what it would have been without the stop.", checkpoint, written_by, processes,
        )  # fmt: skip
    return None


def unreadable(file: Path) -> str | None:
    """Why a file of JSON, of safetensors or of `torch.save` cannot be read: it is missing, empty, cut off or damaged.

    All bytes of a `torch.save` are compared with its check sums. Of safetensors, header and length are read. None for
    a file that can be read, or of another kind.

    Raises:
        OSError: for a file that this process may not open: that is no damage, and nothing is made again for it.
    """
    if not file.exists():
        return f"{file.name} is missing"
    if file.is_dir() or file.suffix not in (".json", ".safetensors", ".pt", ".pth", ".bin"):
        return None
    with file.open("rb") as stream:
        if not stream.read(1):
            return f"{file.name} is empty"
    try:
        if file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.suffix == ".safetensors":
            with safe_open(file, framework="pt"):
                pass
        else:
            with zipfile.ZipFile(file) as archive:
                if (bad := archive.testzip()) is not None:
                    return f"{file.name} is damaged (in {bad})"
    # What readers raise for bytes that are not theirs: `zipfile` looks for places before the start of a file that was
    # cut off (OSError), finds its end (EOFError), or a way of packing that does not exist (NotImplementedError).
    except (OSError, ValueError, SafetensorError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        return f"{file.name} is cut off or damaged ({error})"
    return None
