"""Models by name, and the chunk vectors of texts: encoded once, into a corpus that all seeds and later runs read."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMultipleChoice, AutoModelForSequenceClassification

from ..corpus import chunk_table, corpus_schema, encode_corpus
from ..data.rows import fingerprint, short
from ..encoders import LoadedChunkEncoder, load_chunk_encoder
from ..models.chunk_encoder import weights_fingerprint
from ..models.chunking import ChunkingRule
from ..models.modeling_hate import HateForSequenceClassification, HateModel
from ..models.modeling_nextlevelbert import (
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from .arguments import VectorModelArguments

logger = logging.getLogger(__name__)

MODELS: dict[str, dict[Any, Any]] = {
    "nextlevelbert": {
        AutoModel: NextLevelBertModel,
        AutoModelForSequenceClassification: NextLevelBertForSequenceClassification,
        AutoModelForMultipleChoice: NextLevelBertForMultipleChoice,
    },
    "hate": {AutoModel: HateModel, AutoModelForSequenceClassification: HateForSequenceClassification},
}
"""The models over chunk vectors, by family and auto class."""


@dataclass(frozen=True)
class VectorSource:
    """What texts are encoded with, and what of: the `rule` cuts them into chunks, `weights` is the hash of the model.

    `kind` is the family of models over its vectors; ``"other"`` for an encoder of another kind, without a rule.
    """

    kind: str
    encoder: LoadedChunkEncoder | FirstTokens
    rule: ChunkingRule | None
    weights: str


def open_source(options: VectorModelArguments, baselines: Sequence[str]) -> VectorSource:
    """Opens what makes the vectors for --model: ``untrained``, a checkpoint, any other encoder, or a baseline.

    Raises:
        ValueError: for a name that is none of these, or a model that reads no vectors.
    """
    name, known = options.model, ("untrained", *baselines)
    if name in known:
        encoder = load_chunk_encoder(options.chunk_encoder, options.chunk_encoder_name)
        limit = encoder.max_chunk_size
        size = options.chunk_size or ((limit or 512) if name == "sbert" else 256)
        mode: Any = "sentences" if options.model_type == "hate" else "fixed"
        rule = ChunkingRule.from_tokenizer(encoder.tokenizer, size, mode, limit)
        return VectorSource(options.model_type, encoder, rule, encoder.fingerprint)
    try:
        kind = AutoConfig.from_pretrained(name).model_type
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--model {name!r} is neither a folder with a model nor on the Hub; else it is one of: {', '.join(known)}."
        ) from error
    if kind in ("chunkbert", "bert-al", "cdlm"):
        raise ValueError(f"--model {name!r} is a {kind}, which reads text and no chunk vectors; give a NextLevelBERT.")
    if options.model_type == "hate" != kind:
        raise ValueError(f"--model {name!r} is a {kind}; give a HATE, or leave out --model_type hate.")
    if kind not in MODELS:
        other = FirstTokens(name)
        return VectorSource("other", other, None, other.fingerprint)
    model = AutoModel.from_pretrained(name)
    if (config := model.config).include_chunk_encoder is False:
        folder = options.chunk_encoder if Path(options.chunk_encoder).is_dir() else config.chunk_encoder_name
        encoder = load_chunk_encoder(folder, config.chunk_encoder_name, config.chunk_encoder_pooling)
        model.attach_chunk_encoder(encoder)  # refuses any but the one that made the model's vectors
    return VectorSource(kind, model.detach_chunk_encoder(), config.chunking_rule(), weights_fingerprint(model))


def open_model(options: VectorModelArguments, source: VectorSource, auto_class: Any = AutoModel, **config: Any) -> Any:
    """The model over stored vectors, without its chunk encoder, which `with_chunk_encoder` puts back."""
    model_class = MODELS[source.kind][auto_class]
    config["include_chunk_encoder"] = False
    if options.model == "untrained":
        assert source.rule is not None
        return model_class.from_chunk_encoder(source.encoder, chunk_size=source.rule.chunk_size, **config)
    # What was fine-tuned keeps its classifier if that fits, and else gets a new one.
    return model_class.from_pretrained(options.model, ignore_mismatched_sizes=True, **config)


def with_chunk_encoder(source: VectorSource, auto_class: Any, folder: Path) -> Any:
    """The model in the folder of a seed, with its chunk encoder and tokenizer, to be saved whole."""
    model = MODELS[source.kind][auto_class].from_pretrained(folder)
    model.base_model.attach_chunk_encoder(source.encoder)
    return model


class FirstTokens:
    """Any encoder, frozen: one vector for the tokens of a text that it reads at once, as a corpus has chunks.

    Without a pooling of its own it gets the mean of its token vectors (NextLevelBERT, section 3.2: Longformer, Nomic).
    """

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.encoder = SentenceTransformer(name, device="cpu")
        self.fingerprint = weights_fingerprint(self.encoder)
        self.hidden_size = int(self.encoder.get_embedding_dimension() or 0)
        encoder = {"name": Path(name).name, "fingerprint": self.fingerprint, "hidden_size": self.hidden_size}
        self.schema = corpus_schema({"encoder": encoder, "chunking": {"splitter": None}})

    def __call__(self, batch: dict[str, list[str]]) -> pa.Table:
        """The rows of a batch of documents, as `ChunkVectors` makes them; a line says how many are cut."""
        limit = self.encoder.max_seq_length or 10**9
        texts = self.encoder.tokenizer(batch["text"], verbose=False)["input_ids"]
        if longer := sum(len(ids) > limit for ids in texts):
            logger.warning("The first %d tokens of a text are read; %d of %d are longer.", limit, longer, len(texts))
        vectors = self.encoder.encode(batch["text"], convert_to_tensor=True, show_progress_bar=False)  # [B, D]
        spans = [np.array([[0, len(text)]]) for text in batch["text"]]
        return chunk_table(self.schema, batch["id"], spans, vectors)


def encode_once(
    options: VectorModelArguments, args: Any, source: VectorSource, texts: Iterable[str]
) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of every text, in float16, from a corpus in ``--cache_dir`` that is made where missing.

    Of `args`, only `output_dir` and `device` are looked at. For ``sbert`` it is the first chunk
    alone. A text without a token is refused.
    """
    distinct = list(dict.fromkeys(texts))
    name = fingerprint([source.encoder.fingerprint, str(source.rule), options.encoder_dtype, *distinct])[:16]
    folder = Path(options.cache_dir or f"{args.output_dir}/vectors") / name
    encoder = copy.deepcopy(source.encoder)  # what is published keeps its precision
    encoder.encoder.to(device=args.device, dtype=getattr(torch, options.encoder_dtype))
    corpus = encode_corpus(((str(n), text) for n, text in enumerate(distinct)), encoder, source.rule, folder)
    count = 1 if options.model == "sbert" else None
    vectors = {text: corpus[str(number)].vectors[:count] for number, text in enumerate(distinct)}
    if empty := [text for text, chunks in vectors.items() if not len(chunks)]:
        raise ValueError(f"{len(empty)} texts contain no token, {short(empty[0])} first; leave their rows out.")
    return vectors
