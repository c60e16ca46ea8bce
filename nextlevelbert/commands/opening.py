"""The model of a command, opened from a folder or the Hub, with its chunk encoder."""

from __future__ import annotations

import hashlib
import json
import logging

import transformers
from transformers import AutoConfig, AutoModel

from ..encoders import load_chunk_encoder
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..static_checkpoint import static_checkpoint


def quiet() -> None:
    """No bars and no notes of libraries while a model is loaded; this package's own lines stay, without a prefix."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logging.basicConfig(format="%(message)s")


def open_model(name: str | None, chunk_encoder: str | None = None) -> NextLevelBertModel:
    """The model of a checkpoint, which may hold a head, without that.

    Args:
        name: folder or Hub name; by default the checkpoint that is installed with the package.
        chunk_encoder: folder or name of its chunk encoder, for a checkpoint that holds none.

    Raises:
        SystemExit: with a message, for a checkpoint that is missing or damaged, holds another kind of model, or needs
            a chunk encoder that cannot be loaded.
    """
    quiet()
    if name is None:
        try:
            name = static_checkpoint()
        except FileNotFoundError as error:
            raise SystemExit(f"error: {error} Give it by --model or the variable NEXTLEVELBERT_MODEL.") from error
    try:
        kind = AutoConfig.from_pretrained(name).model_type
        if kind not in ("nextlevelbert", "hate"):
            raise ValueError(f"it is of the kind {kind!r}, but nextlevelbert or hate is needed.")
        model = AutoModel.from_pretrained(name)
        if chunk_encoder is not None:
            model.attach_chunk_encoder(load_chunk_encoder(chunk_encoder))
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: the model {name!r} cannot be used: {error}") from error
    return model


def check_encoder(model: NextLevelBertModel) -> None:
    """Loads the chunk encoder where the checkpoint holds none.

    Raises:
        SystemExit: with a message, if it cannot be loaded.
    """
    try:
        model.get_chunk_encoder()
    except ValueError as error:
        raise SystemExit(f"error: {error} On the command line: --chunk_encoder FOLDER.") from error


def identity(model: NextLevelBertModel) -> str:
    """A hash of all that the vectors of a text depend on: configuration, weights, tokenizer and chunk encoder."""
    left_out = {
        "_name_or_path",
        "transformers_version",
        "architectures",
        "dtype",
        "include_chunk_encoder",
        "chunk_encoder_name",
    }
    config = {key: value for key, value in model.config.to_dict().items() if key not in left_out}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    encoder = model.get_chunk_encoder()
    digest.update(f"{encoder.fingerprint()} {encoder.precision}".encode())
    digest.update(json.dumps(sorted(model.tokenizer.get_vocab().items())).encode())
    for weight, tensor in sorted(model.state_dict().items()):
        if not weight.startswith("chunk_encoder."):
            digest.update(f"{weight}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
