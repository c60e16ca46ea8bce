"""The identity of encoders and models: the key of everything that is stored of their results."""

import hashlib
import json
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder, weights_fingerprint

# Values of configurations that change no vector. They hold paths, names and versions.
_INCIDENTAL = {
    "_name_or_path",
    "architectures",
    "auto_map",
    "chunk_encoder_name",
    "dtype",
    "include_chunk_encoder",
    "transformers_version",
}


def encoder_identity(loaded: LoadedChunkEncoder) -> str:
    """Returns the SHA-256 of what decides the vectors of texts by an encoder.

    These are weights, pooling, normalisation, architecture, tokenizer with its length limit,
    prompts and precision. The encoder's path and its name do not matter.
    """
    return digest_of(
        network_identity(loaded.encoder, loaded.fingerprint),
        tokenizer_fingerprint(loaded.tokenizer),
        {name: text for name, text in loaded.prompts.texts.items() if text},
        loaded.prompts.default_name,
    )


def network_identity(encoder: ChunkEncoder, fingerprint: str) -> str:
    """Returns the SHA-256 of what decides the vectors of token ids by an encoder.

    Args:
        encoder: the encoder.
        fingerprint: its fingerprint, see `ChunkEncoder.fingerprint`.
    """
    return digest_of(fingerprint, encoder.precision, settings_of(encoder.model.config))


def model_identity(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns the SHA-256 of what decides the results of a model for texts.

    These are weights that are used, configuration, tokenizer and precision. The chunk encoder of a
    document model counts if the model holds it; otherwise its fingerprint in the configuration.
    """
    base: Any = model.base_model
    unused: nn.Module | None = None
    if getattr(base, "encoder", model) is None:
        # Without layers over chunks, special vectors stay as they were drawn.
        unused = base.special_embeddings

    return digest_of(
        weights_fingerprint(model, unused=unused),
        str(model.dtype),
        settings_of(model.config),
        tokenizer_fingerprint(tokenizer),
    )


def settings_of(config: PreTrainedConfig) -> dict[str, Any]:
    """Returns the values of a configuration that are not defaults and may change a vector."""
    return _without_incidental(config.to_diff_dict())


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns the SHA-256 of how a tokenizer splits texts, and of its length limit."""
    state: dict[str, Any] = {"vocabulary": tokenizer.get_vocab()}
    if tokenizer.is_fast:
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        # Each call sets them.
        state["truncation"] = None
        state["padding"] = None
    return digest_of(state, tokenizer.model_max_length)


def _without_incidental(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: _without_incidental(inner) for name, inner in value.items() if name not in _INCIDENTAL
    }


def digest_of(*values: Any) -> str:
    """Returns the SHA-256 of values as JSON."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
