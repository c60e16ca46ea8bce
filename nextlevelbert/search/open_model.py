"""Opens the model of a command, and the function that finds its sentences."""

import os

import torch
import transformers
from transformers import AutoConfig, AutoModel

from ..corpus import find_splitter
from ..fitting import static_checkpoint
from ..models.from_encoder import load_chunk_encoder
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..models.registration import register_models
from ..models.sentences import Splitter


def open_model(
    name: str | None = None,
    *,
    chunk_encoder: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
) -> NextLevelBertModel:
    """Opens the document model of a command.

    Args:
        name: folder or name of the model (default: the environment variable NEXTLEVELBERT_MODEL, or
            else the installed checkpoint).
        chunk_encoder: the encoder of a checkpoint that was saved without it.
        device: device that the model runs on.
        dtype: precision of the weights, by torch's name.

    Raises:
        ValueError: if the model or the device cannot be used.
    """
    register_models()  # which the package leaves out in a command
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    if name is None:
        name = os.environ.get("NEXTLEVELBERT_MODEL", "")
    if name == "":
        name = static_checkpoint()
    try:
        family = AutoConfig.from_pretrained(name).model_type
        if family not in ("nextlevelbert", "hate"):
            raise ValueError(
                f"its model_type is {family!r}, but this command needs nextlevelbert or hate."
            )
        model = AutoModel.from_pretrained(name)
        if chunk_encoder is not None:
            model.attach_chunk_encoder(load_chunk_encoder(chunk_encoder))
    except (OSError, ValueError) as error:
        raise ValueError(f"the model {name!r} cannot be used: {error}") from error
    try:
        return model.to(device, getattr(torch, dtype))
    except (RuntimeError, AssertionError) as error:  # torch raises both for a missing device
        raise ValueError(f"--device {device}: {error}") from error


def open_splitter(model: NextLevelBertModel, name: str | None) -> Splitter | None:
    """Finds the function of ``--splitter``.

    Raises:
        ValueError: if there is no such function, or the chunks of the model are not of sentences.
    """
    if name is not None and model.config.chunking == "fixed":
        raise ValueError(
            f"--splitter {name}: the chunks of this model are runs of tokens, not sentences. Leave"
            " the option out, or use a model whose chunking is sentences or packed_sentences."
        )
    return find_splitter(name)
