"""Models by name, with their options; chunk vectors of texts, encoded once for all seeds and runs;
adapters."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel

from ..chunk_vectors import chunk_table, encode_corpus
from ..corpus import corpus_schema
from ..data.rows import fingerprint, short
from ..encoders import LoadedChunkEncoder, load_chunk_encoder
from ..models.chunk_encoder import weights_fingerprint
from ..models.chunking import ChunkingRule
from ..training.trainer import safe_name
from .seeds import option

logger = logging.getLogger(__name__)

FAMILIES = ("nextlevelbert", "hate")  # the models over chunk vectors
WITHOUT = " without the frozen chunk encoder"  # what a card says of the number of their parameters


# --- Options


@dataclass(kw_only=True)
class VectorModelArguments:
    """A model over the chunk vectors of a frozen sentence encoder, or a baseline over them."""

    _argument_group_name = "model"

    model: str = option(
        MISSING,
        "A checkpoint (folder or name on the Hub), or untrained: a new model around"
        " --chunk_encoder. Baselines: avg_sbert, the mean of the chunk vectors; sbert, the first"
        " chunk; tfidf or bm25, word counts, if the task has them; any other encoder, one vector of"
        " what it reads.",
    )
    model_type: str = option(
        "nextlevelbert", "Only for untrained and baselines.", choices=[*FAMILIES]
    )
    chunk_encoder: str | None = option(
        None,
        "Sentence encoder of untrained and the baselines, by default MiniLM, and of checkpoints"
        " without one: name or folder.",
    )
    chunk_encoder_name: str | None = option(
        None, "The encoder's name on the Hub, if --chunk_encoder is a folder."
    )
    chunk_size: int | None = option(
        None, "Of untrained and baselines; by default 256 tokens, of sbert all it reads."
    )
    encoder_dtype: str = option(
        "float32", "Precision of encoding.", choices=["float32", "bfloat16", "float16"]
    )
    cache_dir: str | None = option(
        None, "Folder of vectors, which runs can share; by default OUTPUT_DIR/vectors."
    )


@dataclass(kw_only=True)
class TextModelArguments:
    """An encoder that is trained from text."""

    _argument_group_name = "model"

    model: str = option(
        MISSING, "Encoder to train (BERT or similar), or a saved model: folder or name on the Hub."
    )
    model_type: str = option("bert-al", "What is made of the encoder.")
    attn_implementation: str | None = option(None, "Attention of the encoder, as in transformers.")


@dataclass(kw_only=True)
class ChunkBertArguments:
    """A ChunkBERT: chunks of tokens through an encoder, and convolutions over them."""

    _argument_group_name = "model"

    chunk_size: int | None = option(
        None, "Tokens of a chunk; by default 128, or as saved with the model."
    )
    max_training_tokens: int | None = option(
        None, "Training documents are cut to this length; by default 4096."
    )
    chunk_batch_size: int = option(
        256, "Chunks to encode at a time; fewer take less memory in evaluation."
    )
    keep_attention_dropout: bool = option(
        False,
        "Train a new model with its encoder's own attention dropout, as the paper does; by default"
        " it is 0, which halves the time of a step on a CPU. A saved model keeps its own.",
    )


@dataclass(kw_only=True)
class BertAlArguments:
    """A BERT-AL: an encoder that reads segment after segment, with recurrence between them."""

    _argument_group_name = "model"

    segment_length: int | None = option(
        None, "Tokens of a segment; by default 128, or as saved with the model."
    )
    recurrence: str | None = option(
        None,
        "From segment to segment: replace is the paper's; by default residual, or as saved with the"
        " model.",
        choices=["replace", "residual", "none"],
    )
    max_training_tokens: int | None = option(
        None, "Training documents are cut to this length; by default whole."
    )


@dataclass(kw_only=True)
class LoraArguments:
    """What is trained in place of all weights: the head alone, or low-rank adapters, too (arXiv
    2106.09685)."""

    _argument_group_name = "adapters"

    freeze_encoder: bool = option(
        False, "Train only the head, on the model's frozen document vectors."
    )
    lora: bool = option(False, "Train only low-rank adapters and the head.")
    lora_r: int = option(8, "Rank of the adapters.")
    lora_alpha: int = option(16, "Scale of the adapters, before division by the rank.")


# --- Names, models and vectors


def public_name(model: str) -> str:
    """The model's name in tables and cards: never a local path."""
    return safe_name(Path(model).resolve().name if Path(model).exists() else model)


def hub_name(model: str) -> str | None:
    """The model's name on the Hub; None for a folder, whose path means nothing to anyone else."""
    return None if Path(model).exists() else model


def model_type_of(name: str, known: Sequence[str] = ()) -> str:
    """The family of a checkpoint, of any kind; a ValueError says what --model may be beside one."""
    try:
        return AutoConfig.from_pretrained(name).model_type
    except (OSError, ValueError) as error:
        other = f"; it may also be {', '.join(known)}" if known else ""
        raise ValueError(
            f"--model {name!r} is neither a folder with a model nor on the Hub{other}."
        ) from error


class VectorSource(NamedTuple):
    """What texts are encoded with; the `rule` cuts them into chunks, `weights` is the hash of the
    model.

    `kind` is the family of models over its vectors; ``"other"`` for an encoder of another kind,
    without a rule.
    """

    kind: str
    encoder: LoadedChunkEncoder | FirstTokens
    rule: ChunkingRule | None
    weights: str


def open_source(options: VectorModelArguments, baselines: Sequence[str]) -> VectorSource:
    """Opens what makes the vectors for --model: ``untrained``, a checkpoint, any other encoder, or
    a baseline."""
    name, known = options.model, ("untrained", *baselines)
    if name in known:
        minilm = "sentence-transformers/all-MiniLM-L6-v2"
        encoder = load_chunk_encoder(options.chunk_encoder or minilm, options.chunk_encoder_name)
        limit = encoder.max_chunk_size
        size = options.chunk_size or ((limit or 512) if name == "sbert" else 256)
        mode: Any = "sentences" if options.model_type == "hate" and name != "sbert" else "fixed"
        rule = ChunkingRule.from_tokenizer(encoder.tokenizer, size, mode, limit)
        return VectorSource(options.model_type, encoder, rule, encoder.fingerprint)
    kind = model_type_of(name, known)
    if kind in ("chunkbert", "bert-al", "cdlm"):
        raise ValueError(
            f"--model {name!r} is a {kind}, which reads text, not vectors: add --model_type, or"
            " give a NextLevelBERT."
        )
    config = AutoConfig.from_pretrained(name)
    alone = getattr(config, "include_chunk_encoder", True) is False
    stated = {
        "chunk_size": options.chunk_size,
        "chunk_encoder": None if alone else options.chunk_encoder,
    }
    stated["model_type"] = None if options.model_type in (kind, FAMILIES[0]) else options.model_type
    if ignored := [f"--{key} {value}" for key, value in stated.items() if value is not None]:
        raise ValueError(
            f"{ignored[0]}: --model {name!r} has one of its own; leave the option out."
        )
    if kind not in FAMILIES:
        other = FirstTokens(name)
        return VectorSource("other", other, None, other.fingerprint)
    model = AutoModel.from_pretrained(name)
    if alone:
        public = config.chunk_encoder_name
        encoder = load_chunk_encoder(
            options.chunk_encoder or public, public, config.chunk_encoder_pooling
        )
        model.attach_chunk_encoder(encoder)  # refuses any but the one that made the model's vectors
    return VectorSource(
        kind, model.detach_chunk_encoder(), config.chunking_rule(), weights_fingerprint(model)
    )


def open_model(
    options: VectorModelArguments, source: VectorSource, auto_class: Any = AutoModel, **config: Any
) -> Any:
    """The model over stored vectors, without its chunk encoder, which `with_chunk_encoder` puts
    back."""
    config["include_chunk_encoder"] = False
    if options.model == "untrained":
        assert source.rule is not None
        model_class = auto_class._model_mapping[CONFIG_MAPPING[source.kind]]
        return model_class.from_chunk_encoder(
            source.encoder, chunk_size=source.rule.chunk_size, **config
        )
    # What was fine-tuned keeps its classifier if that fits, and else gets a new one.
    return auto_class.from_pretrained(options.model, ignore_mismatched_sizes=True, **config)


def require_layers(name: str) -> None:
    """Refuses to train document vectors that are the plain mean of the chunk vectors.

    Raises:
        ValueError: for a checkpoint with ``pooling="plain"``, which has no layers over its chunks.
    """
    if name != "untrained" and AutoConfig.from_pretrained(name).pooling == "plain":
        raise ValueError(
            f"--model {name} has no layers to train: its document vectors are the mean of its"
            f" chunk vectors. Give --chunk_encoder {name} with --model untrained to train new"
            " layers over these, or with --model avg_sbert to train a linear map."
        )


def with_chunk_encoder(
    source: VectorSource, auto_class: Any, folder: Path, base: Any = None
) -> Any:
    """The model in the folder of a seed, with its chunk encoder and tokenizer, to be saved whole.

    The adapters there are merged into `base`, the model on which they were trained.
    """
    model = (
        PeftModel.from_pretrained(base, folder).merge_and_unload()
        if base
        else auto_class.from_pretrained(folder)
    )
    model.base_model.attach_chunk_encoder(source.encoder)
    return model


class FirstTokens:
    """Any encoder, frozen: one vector for the tokens of a text that it reads at once, as a corpus
    has chunks.

    Without a pooling of its own it gets the mean of its token vectors (NextLevelBERT, section 3.2:
    Longformer, Nomic).
    """

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.encoder = SentenceTransformer(name, device="cpu")
        self.fingerprint = weights_fingerprint(self.encoder)
        size = int(self.encoder.get_embedding_dimension() or 0)
        encoder = {"name": Path(name).name, "fingerprint": self.fingerprint, "hidden_size": size}
        self.schema = corpus_schema({"encoder": encoder, "chunking": {"splitter": None}})

    def __call__(self, batch: dict[str, list[str]]) -> pa.Table:
        """The rows of a batch of documents, as `ChunkVectors` makes them; a line says how many are
        cut."""
        limit = self.encoder.max_seq_length or 10**9
        lengths = [
            len(ids) for ids in self.encoder.tokenizer(batch["text"], verbose=False)["input_ids"]
        ]
        if longer := sum(length > limit for length in lengths):
            logger.warning(
                "The first %d tokens of a text are read; %d of %d are longer.",
                limit,
                longer,
                len(lengths),
            )
        vectors = self.encoder.encode(
            batch["text"], convert_to_tensor=True, show_progress_bar=False
        )  # [B, D]
        spans = [np.array([[0, len(text)]]) for text in batch["text"]]
        return chunk_table(self.schema, batch["id"], spans, vectors)


def encode_once(
    options: VectorModelArguments, args: Any, source: VectorSource, texts: Iterable[str]
) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of every text, in float16, from a corpus in ``--cache_dir`` that is
    made where missing.

    Of `args`, only `output_dir` and `device` are looked at. Of ``sbert`` it is the first chunk
    alone. A text without a token is refused.
    """
    distinct = list(dict.fromkeys(texts))
    name = fingerprint(
        [source.encoder.fingerprint, str(source.rule), options.encoder_dtype, *distinct]
    )[:16]
    folder = Path(options.cache_dir or f"{args.output_dir}/vectors") / name
    encoder = copy.deepcopy(source.encoder)  # what is published keeps its precision
    encoder.encoder.to(device=args.device, dtype=getattr(torch, options.encoder_dtype))
    corpus = encode_corpus(
        ((str(n), text) for n, text in enumerate(distinct)), encoder, source.rule, folder
    )
    vectors = {text: corpus[str(number)].vectors for number, text in enumerate(distinct)}
    if empty := [text for text, chunks in vectors.items() if not len(chunks)]:
        raise ValueError(
            f"{len(empty)} texts contain no token, {short(empty[0])} first; leave their rows out."
        )
    if options.model == "sbert" and (longer := sum(len(chunks) > 1 for chunks in vectors.values())):
        logger.warning(
            "The first chunk of a text is read; %d of %d are longer.", longer, len(vectors)
        )
    return (
        {text: chunks[:1] for text, chunks in vectors.items()}
        if options.model == "sbert"
        else vectors
    )


# --- Adapters


def with_lora(model: Any, options: LoraArguments) -> PeftModel:
    """Adds low-rank adapters to a model; its head is trained whole, and a chunk encoder stays
    frozen."""
    return get_peft_model(
        model, LoraConfig(r=options.lora_r, lora_alpha=options.lora_alpha, **model.lora_targets())
    )
