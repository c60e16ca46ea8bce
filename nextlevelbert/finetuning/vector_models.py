"""Models whose vectors are made once: the options that several tasks share, opening them, and encoding with them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModel, AutoModelForMultipleChoice, AutoModelForSequenceClassification

from ..encoders import load_chunk_encoder
from ..models.modeling_hate import HateForSequenceClassification, HateModel
from ..models.modeling_nextlevelbert import (
    DocumentEmbedding,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    warn_of_empty_documents,
)
from ..training.precision import precision_that_pays
from ..training.trainer import open_checkpoint
from .arguments import BASELINES, ModelOptions
from .other_encoders import LateChunkingEncoder, OtherEncoder

CARD_NAMES = {
    "nextlevelbert": "[NextLevelBERT](https://arxiv.org/abs/2402.17682)",
    "hate": "HATE (Hierarchical Attention-based Text Encoder)",
    "tobert": "ToBERT (two new layers over chunk vectors)",
}
# The classes of each family: the bare model (None) and those for the auto classes.
MODEL_CLASSES: dict[str, dict[Any, Any]] = {
    "nextlevelbert": {
        None: NextLevelBertModel,
        AutoModelForSequenceClassification: NextLevelBertForSequenceClassification,
        AutoModelForMultipleChoice: NextLevelBertForMultipleChoice,
    },
    "hate": {None: HateModel, AutoModelForSequenceClassification: HateForSequenceClassification},
}
# Limits of one call of `encode`, so that the progress bar moves and memory stays bounded.
_TEXTS_PER_CALL, _CHARACTERS_PER_CALL = 64, 1_000_000


@dataclass(kw_only=True)
class VectorModelOptions(ModelOptions):
    """A model over the chunk vectors of a frozen sentence encoder."""

    baselines: ClassVar[tuple[str, ...]] = ()

    model: str = field(
        metadata={"help": "A checkpoint (folder or name on the Hub), or untrained: a new model around "
                          "--chunk_encoder. Baselines: any other encoder (such as Longformer), which gives one vector "
                          "of as many tokens as it reads; avg_sbert, the mean of the chunk vectors; sbert, "
                          "the first chunk; tobert, two new layers over the chunk vectors; tfidf and bm25, word "
                          "counts. Not every task supports all of them."}
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
    chunk_size: int | None = field(
        default=None,
        metadata={"help": "Maximum tokens per chunk for untrained and the baselines; default 256, and for sbert as "
                          "many as --chunk_encoder reads."},
    )  # fmt: skip
    late_chunking: bool = field(
        default=False,
        metadata={"help": "For --model, any other encoder: its windows are read whole, overlapping where the document "
                          "is longer, and a chunk's vector is the mean of its tokens' vectors there."},
    )  # fmt: skip
    encoder_dtype: str = field(
        default="float32",
        metadata={"help": "Precision of encoding; bfloat16 is faster on hardware that supports it.",
                  "choices": ["float32", "bfloat16", "float16"]},
    )  # fmt: skip

    cache_dir: str | None = field(
        default=None,
        metadata={"help": "Cache of chunk vectors, which several runs can share. Default: OUTPUT_DIR-vectors."},
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model in BASELINES and self.model not in self.baselines:
            known = ", ".join(("untrained", *self.baselines))
            raise ValueError(
                f"This task does not support --model {self.model}. It takes a checkpoint or one of: {known}."
            )
        if self.chunk_size is None and self.model != "sbert":
            self.chunk_size = 256
        if self.late_chunking and self.new:
            raise ValueError(
                f"--late_chunking is for an encoder of another kind, and --model {self.model} is none. For MiniLM: "
                "--model sentence-transformers/all-MiniLM-L6-v2 --late_chunking."
            )

    def precision(self, device: torch.device) -> str:
        """The precision of encoding there."""
        return precision_that_pays(self.encoder_dtype, device, "--encoder_dtype")

    @property
    def title(self) -> str:
        return f"{self.public_name}, late chunking" if self.late_chunking else self.public_name

    @cached_property
    def other(self) -> bool:
        """Whether --model is an encoder of another kind, which is a baseline.

        Raises:
            ValueError: if there is no such model.
        """
        if self.new:
            return False
        try:
            kind = AutoConfig.from_pretrained(self.model).model_type
        except (OSError, ValueError) as error:
            raise ValueError(
                f"--model {self.model!r} is neither a folder with a checkpoint nor on the Hub. Otherwise --model is "
                f"one of: {', '.join(('untrained', *self.baselines))}."
            ) from error
        if kind in ("chunkbert", "bert-al"):
            raise ValueError(f"--model {self.model!r} is a {kind}; add --model_type {kind}.")
        if self.model_type == "hate" and kind != "hate":
            raise ValueError(f"--model {self.model!r} is a {kind}; give a HATE, or leave out --model_type hate.")
        if self.late_chunking and kind in MODEL_CLASSES:
            raise ValueError(
                f"--late_chunking is for an encoder of another kind, and --model {self.model!r} is a {kind}; leave it "
                "out."
            )
        return kind not in MODEL_CLASSES

    def card_name(self, kind: str) -> str:
        """What a card calls the model, a baseline or of the family `kind`."""
        return CARD_NAMES[self.model if self.model == "tobert" else kind]

    @property
    def vectors_only(self) -> bool:
        """Whether --model is a baseline without layers over chunk vectors: a head is all that can be trained."""
        return self.model in ("avg_sbert", "sbert", "tfidf", "bm25") or self.other

    def check_upload(self, push_to_hub: bool) -> None:
        """Raises a ValueError for an upload of a baseline."""
        if push_to_hub and self.vectors_only:
            raise ValueError(f"--model {self.model} is a baseline, which is not published; leave out --push_to_hub.")

    def cache(self, output_dir: str) -> Path:
        """Cache of chunk vectors: by default not in the output folder, whose files are published."""
        return Path(self.cache_dir or f"{Path(output_dir)}-vectors")

    def training_signature(self) -> dict[str, object]:
        return {**super().training_signature(), "chunk_encoder": Path(self.chunk_encoder).name}


def open_reader(options: VectorModelOptions) -> Any:
    """What turns texts into vectors by its `encode`: a model of this package, or an encoder of another kind.

    Raises:
        ValueError: as `load`.
    """
    if not options.other:
        return load(options)
    if options.late_chunking:
        return LateChunkingEncoder(options.model, options.chunk_size or 256)
    return OtherEncoder(options.model)


def load(options: VectorModelOptions, task_class: Any = None, **config: Any) -> Any:
    """The model with a head, or the bare model; `untrained` and the baselines are built around the chunk encoder.

    Args:
        options: which model.
        task_class: an ``AutoModelFor…``, or None for the bare model.
        config: fields of the configuration.

    Raises:
        ValueError: if there is no such model, or it is not a NextLevelBERT or HATE.
    """
    if options.new:
        source = load_chunk_encoder(options.chunk_encoder, options.chunk_encoder_name)
        values = {"chunk_size": options.chunk_size or source.max_chunk_size or 512, **config}
        kind = options.model_type
        if options.model == "tobert":  # Pappagari et al., 2019: two layers over chunks of a fixed size
            kind, values = "hate", {"num_hidden_layers": 2, "chunking": "fixed", **values}
        return MODEL_CLASSES[kind][task_class].from_chunk_encoder(source, **values)
    if options.other:
        raise ValueError(
            f"--model {options.model!r} is neither a NextLevelBERT nor a HATE. Give one of these, or one of: "
            f"{', '.join(('untrained', *options.baselines))}."
        )
    # A checkpoint that was fine-tuned keeps its classifier if it fits; otherwise it gets a new one.
    model = open_checkpoint(task_class or AutoModel, options.model, ignore_mismatched_sizes=True, **config)
    if task_class is None and model.chunk_encoder is None:  # a checkpoint without an encoder
        folder = options.chunk_encoder if Path(options.chunk_encoder).is_dir() else None
        path = folder or model.named_chunk_encoder()
        name = options.chunk_encoder_name or model.config.chunk_encoder_name
        model.attach_chunk_encoder(load_chunk_encoder(path, name, model.config.chunk_encoder_pooling))
    return model


def encode_in_parts(model: Any, texts: Sequence[str], desc: str, **encode: Any) -> Iterator[DocumentEmbedding]:
    """Yields the embeddings of texts one by one, so that the caller keeps only what it needs.

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
                with warnings.catch_warnings():  # it counts within the part
                    warnings.filterwarnings("ignore", "Document.* contain no token")
                    found = model.encode(part, **encode)
                first = number + 1 - len(part)
                if empty := [first + place for place, each in enumerate(found) if len(each.plain) == 0]:
                    warn_of_empty_documents(empty)
                yield from found
                bar.update(len(part))
                part = []
    if isinstance(model, OtherEncoder):
        model.report_cuts()
