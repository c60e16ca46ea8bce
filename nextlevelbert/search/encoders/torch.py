"""Opens the model of a command in torch, and encodes with it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModel, PreTrainedConfig
from transformers.utils import is_torch_bf16_available_on_device

from ...models.chunk_encoder import ChunkEncoder
from ...models.from_encoder import load_chunk_encoder
from ...models.identity import model_identity
from ...models.model_names import TOKEN_FAMILIES, full_name, hub_arguments, name_on_hub
from ...models.modeling_nextlevelbert import NextLevelBertModel
from ...models.registration import register_models
from ...models.sentences import Splitter
from ...models.static_encoders import StaticEmbeddingModel
from ...models.tokenizing import tokenize_document
from .files import EncodedTexts

_DOCUMENT_MODELS = ("nextlevelbert", "hate")
# Most tokens in a passage that a sentence encoder reads: as in the installed checkpoint, about half
# a page. Some encoders read less.
_CHUNK_SIZE = 256


def open_model(
    name: str,
    *,
    chunk_encoder: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> NextLevelBertModel:
    """Opens the model of a command: one of this package, or any sentence encoder.

    A sentence encoder becomes a model without layers over chunks. Its passages have up to 256
    tokens, and begin with the encoder's own prompt for passages.

    Args:
        name: folder or name of a model of this package, or of a sentence-transformers model;
            ``"minilm"`` is short for all-MiniLM-L6-v2.
        chunk_encoder: the encoder of a checkpoint that was saved without it.
        device: device that the model runs on. ``"auto"`` is the GPU if there is one, and the CPU
            for static encoders, which a GPU would not speed up.
        dtype: precision of the weights, by torch's name. ``"auto"`` is bfloat16 on a GPU that
            computes in it, and float32 otherwise.

    Raises:
        ValueError: if the model or the device cannot be used.
    """
    register_models()  # which the package leaves out in a command
    try:
        with _quiet_transformers():
            model = _open(name, chunk_encoder)
    except (OSError, ValueError, StrictDataclassError) as error:  # the last of a configuration
        raise ValueError(f"the model {name!r} cannot be used: {error}") from error

    device = choose_device(device, model.get_chunk_encoder())
    if dtype == "auto":
        dtype = best_dtype(device)
    try:
        return model.to(device, getattr(torch, dtype))
    except (RuntimeError, AssertionError) as error:  # torch raises both for a missing device
        raise ValueError(f"--device {device}: {error}") from error


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Hides bars and reports of transformers while a model is opened."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    has_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def _open(name: str, chunk_encoder: str | None) -> NextLevelBertModel:
    """Opens a document model, or makes one over a sentence encoder, in float32 on the CPU."""
    name = name_on_hub(name)
    path = full_name(name)
    loading = hub_arguments(path)
    family = ""
    with suppress(OSError):  # no configuration of transformers
        config, _ = PreTrainedConfig.get_config_dict(path, **loading)
        family = config.get("model_type", "")
    if family in TOKEN_FAMILIES:
        raise ValueError(
            f"its model_type is {family!r}. Give a model of the family nextlevelbert or hate, or a"
            " sentence encoder."
        )

    if family not in _DOCUMENT_MODELS:
        encoder = load_chunk_encoder(name)
        most = encoder.max_chunk_size or _CHUNK_SIZE
        size = min(_CHUNK_SIZE, encoder.tokenizer.model_max_length, most)
        return NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=size, pooling="plain")
    model = AutoModel.from_pretrained(path, **loading)
    if chunk_encoder is not None:
        model.attach_chunk_encoder(load_chunk_encoder(chunk_encoder))
    return model


def choose_device(device: str, encoder: ChunkEncoder) -> str:
    """Returns the device of an encoder, for ``"auto"`` the GPU if the encoder has layers."""
    if device != "auto":
        return device
    accelerator = torch.accelerator.current_accelerator()
    if accelerator and encoder.has_layers and torch.accelerator.is_available():
        return accelerator.type
    return "cpu"


def best_dtype(device: str) -> str:
    """Returns the precision for a device: bfloat16 on a GPU that computes in it.

    On CPUs, only some are faster in bfloat16.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bfloat16 = kind != "cpu" and is_torch_bf16_available_on_device(kind)
    if has_bfloat16:
        return "bfloat16"
    return "float32"


class TorchEncoder:
    """Reads with a document model; `StaticEncoder` does the same without torch.

    Args:
        model: the model.

    Attributes:
        has_layers: true if the chunk encoder has layers, which makes it slow.
        has_token_vectors: true if the chunk encoder is a table of token vectors.
        is_whitened: true if the model whitens vectors.
        tokenizer: the tokenizer.
        rule: the rule that splits documents into chunks, with the prompt of passages.
    """

    def __init__(self, model: NextLevelBertModel) -> None:
        self._model = model
        self._encoder = model.get_chunk_encoder()
        self.has_layers = self._encoder.has_layers
        self.has_token_vectors = isinstance(self._encoder.model, StaticEmbeddingModel)
        self.is_whitened: bool = getattr(model.config, "whiten_chunks", False)  # not in HATE
        self.tokenizer = model.tokenizer
        self.rule = model.prompted_rule(model.config.encoder_prompts().passage)

    def __str__(self) -> str:
        device = str(self._encoder.device)
        if self._encoder.device.type == "cuda":
            device = f"{device} ({torch.cuda.get_device_name(self._encoder.device)})"
        return f"{self._model.config.chunk_encoder_name} on {device} in {self._encoder.precision}"

    def fingerprint(self) -> str:
        """Returns the identity of the model."""
        return model_identity(self._model, self.tokenizer)

    @property
    def encoder_recipe(self) -> dict[str, Any]:
        """Returns what determines the vectors of chunks, as in `ChunkVectors.recipe`."""
        config = self._model.config
        return {
            "hidden_size": self._encoder.hidden_size,
            "pooling": self._encoder.pooling,
            "normalize": self._encoder.normalize,
            "name": str(config.chunk_encoder_name),
            "fingerprint": config.chunk_encoder_fingerprint or self._encoder.fingerprint(),
            "dtype": self._encoder.precision,
        }

    def question_vector(self, question: str) -> np.ndarray | None:
        """Encodes a question for comparison with vectors from `search_vectors`.

        Returns:
            The mean of its chunk vectors, ``[D]``; None if the question holds no token.
        """
        if len(tokenize_document(self.tokenizer, question)) == 0:
            return None
        return self._model.encode_query(question).numpy()

    def token_vectors(self, ids: np.ndarray) -> np.ndarray:
        """Returns the vectors of tokens ``[T, D]``, if the encoder has a table of them."""
        table: Any = self._encoder.model.get_parameter("embedding.weight")
        return table[torch.from_numpy(ids)].float().numpy(force=True)

    def search_vectors(self, plain: np.ndarray) -> np.ndarray:
        """Prepares chunk vectors ``[N, D]`` for comparison, as float32 on the CPU."""
        return self._model.search_vectors(torch.from_numpy(plain)).numpy()

    def encode(self, texts: Sequence[str], splitter: Splitter | None = None) -> EncodedTexts:
        """Encodes documents; a bar counts the chunks of a slow encoder.

        Args:
            texts: texts of the documents.
            splitter: function that finds sentences, as in the model's ``encode``.
        """
        embeddings = self._model.encode(
            texts,
            show_progress_bar=self.has_layers,
            splitter=splitter,
            prompt=self.rule.prompt,
        )
        return EncodedTexts(
            spans=[embedding.spans for embedding in embeddings],
            plain=torch.cat([embedding.plain for embedding in embeddings]).numpy(),
            documents=torch.stack([embedding.document for embedding in embeddings]).numpy(),
        )
