"""Models over chunk vectors, as several tasks take them: their options, opening them, encoding with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModel, AutoModelForMultipleChoice, AutoModelForSequenceClassification

from ..models.chunk_encoder import load_chunk_encoder
from ..models.modeling_hate import HateForSequenceClassification, HateModel
from ..models.modeling_nextlevelbert import (
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from ..models.outputs import DocumentEmbedding
from .arguments import ModelOptions, Options

BASELINES = ("avg_sbert", "sbert", "tfidf", "bm25")
CARD_NAMES = {
    "nextlevelbert": "[NextLevelBERT](https://arxiv.org/abs/2402.17682)",
    "hate": "HATE (Hierarchical Attention-based Text Encoder)",
}
# Of each family, what stands for the bare model and for the auto classes.
MODEL_CLASSES: dict[str, dict[Any, Any]] = {
    "nextlevelbert": {
        None: NextLevelBertModel,
        AutoModelForSequenceClassification: NextLevelBertForSequenceClassification,
        AutoModelForMultipleChoice: NextLevelBertForMultipleChoice,
    },
    "hate": {None: HateModel, AutoModelForSequenceClassification: HateForSequenceClassification},
}
# Encoded at a time, so that a bar moves and no more than this is held beside what the caller keeps.
_TEXTS_PER_CALL, _CHARACTERS_PER_CALL = 64, 1_000_000


@dataclass(kw_only=True)
class CacheOptions(Options):
    """Where chunk vectors are kept."""

    _argument_group_name = "runs"

    cache_dir: str | None = field(
        default=None,
        metadata={"help": "Cache of chunk vectors, which several runs can share. Default: OUTPUT_DIR-vectors."},
    )  # fmt: skip

    def cache(self, output_dir: str) -> Path:
        """The folder: by default beside the model's, not in it, because what is in there is published."""
        return Path(self.cache_dir or f"{Path(output_dir)}-vectors")


@dataclass(kw_only=True)
class VectorModelOptions(ModelOptions, CacheOptions):
    """A model over the chunk vectors of a frozen sentence encoder."""

    baselines: ClassVar[tuple[str, ...]] = ()

    model: str = field(
        metadata={"help": "A checkpoint (folder or name on the Hub), or untrained: a new model around "
                          "--chunk_encoder. Baselines: avg_sbert, the mean of the chunk vectors; sbert, the first "
                          "chunk; tfidf and bm25, word counts. Not every task supports all of them."}
    )  # fmt: skip
    model_type: Literal["nextlevelbert", "hate"] = field(
        default="nextlevelbert",
        metadata={"help": "Used for untrained, avg_sbert and sbert; a checkpoint has its own type. Default "
                          "nextlevelbert."},
    )  # fmt: skip
    chunk_encoder: str = field(
        default="sentence-transformers/all-MiniLM-L6-v2",
        metadata={"help": "Sentence encoder for untrained, avg_sbert, sbert, and checkpoints without one: name or "
                          "folder; default sentence-transformers/all-MiniLM-L6-v2."},
    )  # fmt: skip
    chunk_encoder_name: str | None = field(
        default=None, metadata={"help": "The encoder's name on the Hub, if --chunk_encoder is a folder."}
    )
    chunk_size: int = field(
        default=256, metadata={"help": "Maximum tokens per chunk for untrained, avg_sbert and sbert; default 256."}
    )
    encoder_dtype: str = field(
        default="float32",
        metadata={"help": "Precision of encoding; bfloat16 is faster on hardware that supports it.",
                  "choices": ["float32", "bfloat16", "float16"]},
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model in BASELINES and self.model not in self.baselines:
            known = ", ".join(("untrained", *self.baselines))
            raise ValueError(
                f"This task does not support --model {self.model}. It takes a checkpoint or one of: {known}."
            )

    @property
    def new(self) -> bool:
        """Whether the model is made here, around the chunk encoder."""
        return self.model in ("untrained", *BASELINES)

    @property
    def local(self) -> bool:
        return not self.new and super().local

    @property
    def title(self) -> str:
        return self.public_name

    @property
    def base_model(self) -> str | None:
        return None if self.new else super().base_model

    def training_signature(self) -> dict[str, object]:
        return {**super().training_signature(), "chunk_encoder": Path(self.chunk_encoder).name}


def load(options: Any, task_class: Any = None, **config: Any) -> Any:
    """The model with a head, or the bare one; `untrained` and the baselines are made around the chunk encoder.

    Args:
        options: which model.
        task_class: an ``AutoModelFor…``, or None for the bare model.
        config: fields of the configuration.

    Raises:
        ValueError: if there is no such model, or it is none that reads vectors or has no such head.
    """
    if options.new:
        source = load_chunk_encoder(options.chunk_encoder, options.chunk_encoder_name)
        cls = MODEL_CLASSES[options.model_type][task_class]
        return cls.from_chunk_encoder(source, chunk_size=options.chunk_size, **config)
    words = f"Otherwise --model is one of: {', '.join(('untrained', *options.baselines))}."
    try:
        kind = AutoConfig.from_pretrained(options.model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--model {options.model!r} is neither a folder with a checkpoint nor on the Hub. {words}"
        ) from error
    if kind in ("chunkbert", "bert-al"):
        raise ValueError(f"--model {options.model!r} is a {kind}; add --model_type {kind}.")
    if kind not in MODEL_CLASSES or (options.model_type == "hate" and kind != "hate"):
        wanted = "HATE" if options.model_type == "hate" else "NextLevelBERT or HATE"
        raise ValueError(f"--model {options.model!r} is a {kind}; give a {wanted}. {words}")
    # A checkpoint that was fine-tuned keeps its classifier where it fits, and else gets a new one.
    model = (task_class or AutoModel).from_pretrained(options.model, ignore_mismatched_sizes=True, **config)
    if task_class is None and model.chunk_encoder is None:  # a small checkpoint: its encoder comes from elsewhere
        folder = options.chunk_encoder if Path(options.chunk_encoder).is_dir() else None
        name = model.config.chunk_encoder_name
        model.attach_chunk_encoder(load_chunk_encoder(folder or name, options.chunk_encoder_name or name))
    return model


def pad_vectors(documents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of B documents as ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
    lengths = torch.tensor([len(vectors) for vectors in documents])
    return {
        "inputs_embeds": pad_sequence(list(documents), batch_first=True),
        "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
    }


def encode_in_parts(model: Any, texts: Sequence[str], desc: str, **encode: Any) -> Iterator[DocumentEmbedding]:
    """The embeddings of texts one after another, so that the caller keeps only what it needs of each.

    Args:
        model: a `NextLevelBertModel`.
        texts: whole documents.
        desc: name of the progress bar.
        encode: further arguments of `model.encode` (`dtype`, `cache_dir`, `chunk_encoder`).
    """
    part: list[str] = []
    with tqdm(total=len(texts), unit="text", desc=desc, delay=2) as bar:
        for number, text in enumerate(texts):
            part.append(text)
            full = len(part) == _TEXTS_PER_CALL or sum(map(len, part)) >= _CHARACTERS_PER_CALL
            if full or number == len(texts) - 1:
                yield from model.encode(part, **encode)
                bar.update(len(part))
                part = []
