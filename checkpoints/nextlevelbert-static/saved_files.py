"""The files of a saved folder: are they whole, and are they what was written?

``checksums.json`` holds a CRC-32 of each file. Other programs may write a file again without changing what it says
(sentence-transformers does), so a JSON file also has one of its content. People edit ``config.json``: one that says
something else is used, with a warning. Folders without check sums, those of older releases among them, are only
checked for files that are missing, cut off or no JSON.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig
from transformers.utils import cached_file

SUMS = "checksums.json"
_CONFIG, _MODULES = "config.json", "modules.json"
_JSON = (
    _CONFIG, _MODULES, "config_sentence_transformers.json", "processor_config.json", "sentence_bert_config.json",
    "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip
_VOCABULARIES = ("merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "vocab.json", "vocab.txt")
TOKENIZER_FILES = (
    *_VOCABULARIES,
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
_INDEX = "model*.safetensors.index.json"  # which file holds which weight, where there are several
_WEIGHTS = "model*.safetensors"
_ANY_WEIGHTS = (".bin", ".gguf", ".h5", ".msgpack", ".pt", ".pth", ".safetensors")
_BLOCK = 2**20  # bytes read at a time
# What every configuration of transformers takes beside its fields.
_OF_EVERY_CONFIG = frozenset(
    "attn_implementation experts_implementation name_or_path output_attentions torch_dtype".split()
)


# --- Writing


def begin_sums(folder: str | PathLike[str]) -> None:
    """Says that a folder is being saved, so that one whose saving was interrupted is known by it."""
    _write(Path(folder), None)


def write_sums(folder: str | PathLike[str]) -> None:
    """Stores the check sums of all files of a model in a folder, once they are written."""
    folder = Path(folder)
    _write(folder, {name: _sums(folder / name) for name in _present(folder)})


def update_sums(folder: str | Path, names: Iterable[str]) -> None:
    """Stores the check sums of files that were written again; does nothing where there are none, or not yet."""
    folder = Path(folder)
    sums = _read(folder) if (folder / SUMS).exists() else None
    if sums is None:
        return
    changed = sorted(set(_present(folder)).intersection(names))
    _write(folder, {**sums, **{name: _sums(folder / name) for name in changed}})


def _write(folder: Path, sums: Mapping[str, str] | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {"files": sums}
    partial = folder / f"{SUMS}.partial"
    partial.write_text(json.dumps({**content, "sum": _crc(_canonical(content))}, indent=2) + "\n")
    partial.replace(folder / SUMS)


def _present(folder: Path) -> list[str]:
    """The files of a model that lie in a folder; others may lie beside them."""
    names = {name for name in (*_JSON, *_VOCABULARIES) if (folder / name).is_file()}
    return sorted(names.union(path.name for kind in (_WEIGHTS, _INDEX, "*.py") for path in folder.glob(kind)))


def _sums(path: Path) -> str:
    """The check sum of a file, and after it that of its content where it is JSON."""
    own = _file_crc(path)
    return f"{own} {_crc(_canonical(_meaning(path.name, _json(path))))}" if path.suffix == ".json" else own


def _file_crc(path: Path) -> str:
    """CRC-32: finds every change of up to 32 bits in a row, and others but for one in four billion."""
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return f"{found:08x}"


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def _canonical(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _meaning(name: str, content: Any) -> Any:
    """What a JSON file says about the results; not what other programs are free to write anew."""
    if name == "tokenizer.json":  # which keeps how it was last called
        return {key: value for key, value in content.items() if key not in ("padding", "truncation")}
    if name == "tokenizer_config.json":
        return {key: content[key] for key in content if key.endswith(("_token", "_tokens", "_class"))}
    if name == "sentence_bert_config.json":
        return [content.get(key) for key in ("transformer_task", "modality_config", "module_output_name")]
    if name == "config_sentence_transformers.json":  # versions, and how sentence-transformers compares vectors
        return None
    if name == _MODULES:  # their place in a package changes; what stands after a document model is the user's
        kinds = [[str(module["type"]).rpartition(".")[2], module.get("path")] for module in content]
        return kinds if kinds[0][0] == "StaticEmbedding" else kinds[:1]
    return content


def _json(path: Path) -> Any:
    """The content of a JSON file; a ValueError if it is none, or says something else than a file of its name."""
    content: Any = json.loads(path.read_bytes())
    expected = list if path.name == _MODULES else dict
    if not issubclass(type(content), expected):
        raise ValueError(f"it holds a {type(content).__name__} where a {expected.__name__} belongs")
    if path.name == _MODULES and not (content and all(map(_is_module, content))):
        raise ValueError("it is not a list of modules")
    if path.name == _CONFIG and not isinstance(content.get("model_type"), str):
        raise ValueError("it has no model_type")
    if path.match(_INDEX) and not isinstance(content.get("weight_map"), dict):
        raise ValueError("it has no weight_map")
    return content


def _is_module(entry: object) -> bool:
    """Whether an entry of a ``modules.json`` says of which class a module is and in which folder it lies."""
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("type", "path"))


# --- Checking


def check_folder(folder: str | Path, complete: bool = True, code: bool = False) -> bool:
    """Checks the files of a saved model before they are read; warns of a ``config.json`` that was edited.

    Args:
        folder: that of the model.
        complete: whether all its files have to be there; those of the Hub are downloaded one by one.
        code: whether the modelling code in the folder counts.

    Returns:
        Whether ``config.json`` was edited.

    Raises:
        ValueError: naming every file that is missing, cut off, damaged, or not what was saved.
    """
    folder = Path(folder)
    sums = _read(folder) if (folder / SUMS).exists() else {}
    if sums is None:
        raise ValueError(
            f"{folder} was saved incompletely: saving began and did not end. Save the model again. To open what is "
            f"there all the same, delete {folder / SUMS}."
        )
    names = [name for name in sorted({*sums, *_present(folder)}) if code or not name.endswith(".py")]
    bad = [f"{name} {fault}" for name in names if (fault := _fault(folder / name, sums.get(name), complete))]
    bad += _missing(folder, set(names)) if complete else []
    if bad:
        accept = f" If they are as they should be, delete {folder / SUMS}." if sums else ""
        raise ValueError(
            f"{folder} cannot be opened: {'; '.join(bad)}. It was saved or copied incompletely, or something changed "
            f"these files: get them again.{accept}"
        )
    if edited := _edited(folder / _CONFIG, sums.get(_CONFIG)):
        warnings.warn(
            f"{folder / _CONFIG} is not what was saved, and is used as it is now. If you did not edit it, get the "
            "checkpoint again. To end this warning, save the model again.",
            stacklevel=2,
        )
    return edited


def _edited(path: Path, sums: str | None) -> bool:
    own, _, meaning = (sums or "").partition(" ")
    return bool(own) and path.exists() and _file_crc(path) != own and _crc(_canonical(_json(path))) != meaning


def changed(folder: Path, names: Iterable[str]) -> str | None:
    """The first of these files that is not what was saved, and why; None if all are, or have no check sums."""
    try:
        sums = _read(folder) if (folder / SUMS).exists() else {}
    except ValueError as error:
        return str(error)
    if sums is None:
        return "saving began and did not end"
    known = [name for name in names if name in sums]
    return next((f"{name} {fault}" for name in known if (fault := _fault(folder / name, sums[name], True))), None)


def _read(folder: Path) -> dict[str, str] | None:
    """Check sums by name of file; None for a folder whose saving did not end."""
    path = folder / SUMS
    try:
        content = json.loads(path.read_bytes())
        if content["sum"] != _crc(_canonical({"files": content["files"]})):
            raise ValueError("its own check sum is another")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({error!r}). Get it again; or delete it, and the files beside it are taken as "
            "they are."
        ) from error
    return content["files"]  # type: ignore[no-any-return]


def _fault(path: Path, sums: str | None, complete: bool) -> str | None:
    """What is wrong with a file; None where nothing is."""
    if not path.exists():
        return "is missing" if complete else None
    own, _, meaning = (sums or "").partition(" ")
    found = _file_crc(path) if own else None
    if own and found == own:
        return None
    if path.stat().st_size == 0:
        return "is empty"
    try:
        if path.suffix == ".json":
            content = _json(path)
            if not own or path.name == _CONFIG or _crc(_canonical(_meaning(path.name, content))) == meaning:
                return None
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt"):
                pass
    except (ValueError, KeyError, TypeError, AttributeError, OSError, SafetensorError) as error:
        return f"is cut off or damaged, or only a pointer to the real file ({error})"
    return f"is not what was saved (its check sum is {found}, not {own})" if own else None


def _missing(folder: Path, names: set[str]) -> Iterator[str]:
    """Files that have to be there, whatever the check sums name."""
    for path in folder.glob(_INDEX):
        try:
            files = set(_json(path)["weight_map"].values())
        except (ValueError, TypeError):
            continue  # said already
        yield from (f"{name} is missing" for name in sorted(files - names))
    if _CONFIG not in names and _MODULES not in names:
        yield f"{_CONFIG} is missing"
    if not any(path.suffix in _ANY_WEIGHTS for path in folder.iterdir()) and _CONFIG in names:
        yield "model.safetensors is missing"


@contextmanager
def opening(source: Any, loading: Mapping[str, Any], code: bool = False) -> Iterator[None]:
    """Checks the files of a model that is opened within: before that, or after their download from the Hub.

    Args:
        source: folder or Hub name.
        loading: arguments of `from_pretrained` such as `revision` and `subfolder`.
        code: whether it is opened by the code that comes with it.

    Raises:
        ValueError: as `check_folder`; or if the model cannot be opened with a ``config.json`` that was edited.
    """
    if Path(source).is_dir():
        folder = Path(source) / loading.get("subfolder", "")
        edited = check_folder(folder, code=code)
        try:
            yield
        except Exception as error:
            if not edited:
                raise
            raise ValueError(
                f"{folder} cannot be opened with its {_CONFIG}, which is not what was saved: {error} Undo the change, "
                "or get the checkpoint again."
            ) from error
        return
    quiet = {f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "gated_repo", "connection_errors")}
    try:
        found = cached_file(source, SUMS, **loading, **quiet)
    except (OSError, ValueError):
        found = None  # what is wrong with the name is said when the model is opened
    try:
        yield
    except Exception:
        if found:
            check_folder(Path(found).parent, complete=False, code=code)
        raise
    if found:
        check_folder(Path(found).parent, complete=False, code=code)


class SavedConfig:
    """For configurations: errors that say what to do, and check sums that follow what is saved. Before other bases."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in transformers.

        Raises:
            ValueError: for fields of the wrong kind.
        """
        parent: Any = super()
        try:
            return parent.from_dict(config_dict, **kwargs)
        except (StrictDataclassError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"A {cls.__name__} cannot be made of these fields: {error} If they come from a {_CONFIG}, it is "
                "damaged or was changed: get the checkpoint again."
            ) from error

    def __post_init__(self, **kwargs: Any) -> None:
        """As in transformers.

        Raises:
            ValueError: for an argument that is no field; transformers would keep it. What was saved may have further
                ones, of another release or of another library.
        """
        this: Any = self
        unknown = sorted(name for name in kwargs.keys() - _OF_EVERY_CONFIG if not hasattr(type(self), name))
        if unknown and this.transformers_version is None:
            own = ", ".join(sorted(this.__dataclass_fields__.keys() - PreTrainedConfig.__dataclass_fields__.keys()))
            raise ValueError(
                f"{type(self).__name__} has no field {', '.join(unknown)}. Its fields are {own}, and those of every "
                "configuration, such as num_labels and problem_type."
            )
        parent: Any = super()
        parent.__post_init__(**kwargs)

    def save_pretrained(self, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
        """As in transformers; where the folder has check sums, that of the configuration becomes the new one."""
        parent: Any = super()
        parent.save_pretrained(save_directory, *args, **kwargs)
        update_sums(save_directory, [_CONFIG])
