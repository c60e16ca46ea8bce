"""The encoder of the texts of a task: vectors that are made once for all seeds and runs."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModel

from ..corpus.encode import encode_corpus
from ..messages import short
from ..models.chunk_encoder import LoadedChunkEncoder
from ..models.chunking import ChunkingRule
from ..models.from_encoder import load_chunk_encoder
from ..models.identity import digest_of, encoder_identity, model_identity
from ..models.model_names import TOKEN_FAMILIES, full_name
from ..models.modeling_hate import HateForSequenceClassification
from ..models.modeling_nextlevelbert import (
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
)
from ..training.arguments import open_config
from ..training.cards import name_on_hub
from .arguments import FinetuningArguments
from .options import FAMILIES, VectorModelArguments

logger = logging.getLogger(__name__)

Head = Literal["classification", "multiple_choice"]
MODELS: dict[tuple[str, Head], Any] = {
    ("nextlevelbert", "classification"): NextLevelBertForSequenceClassification,
    ("nextlevelbert", "multiple_choice"): NextLevelBertForMultipleChoice,
    ("hate", "classification"): HateForSequenceClassification,
}


@dataclass(frozen=True)
class VectorModels:
    """An encoder of texts, and the models over its vectors.

    Args:
        options: options that describe the model.
        family: family of the models over the vectors.
        encoder: callable that makes the vectors.
        rule: rule that splits texts into chunks.
        weights: identity of the model and of its chunk encoder.
    """

    options: VectorModelArguments
    family: str
    encoder: LoadedChunkEncoder
    rule: ChunkingRule
    weights: str

    @classmethod
    def open(cls, options: VectorModelArguments, baselines: Sequence[str] = ()) -> VectorModels:
        """Opens the encoder of the texts for ``--model``.

        Args:
            options: options that describe the model: ``untrained``, a checkpoint, a sentence
                encoder, over which a new model is made.
            baselines: names of the baselines of the task, which an error mentions.

        Raises:
            ValueError: for a model that is not there or reads no vectors, and options that the
                model does not have.
        """
        name = options.model
        others = ("untrained", *baselines)
        if name == "untrained":
            return cls._open_new(options)

        name = full_name(name)
        config = open_config(name, others)
        family = config.model_type
        if family in TOKEN_FAMILIES:
            raise ValueError(
                f"--model {name!r} is a {family}, which reads text, not vectors. Add --model_type,"
                " or give a NextLevelBERT."
            )

        if family not in FAMILIES:
            return cls._open_over(options, name)

        is_alone = getattr(config, "include_chunk_encoder", True) is False
        _check_fixed_options(options, family, is_alone=is_alone)
        model = AutoModel.from_pretrained(name)
        if is_alone:
            encoder = load_chunk_encoder(
                options.chunk_encoder or config.chunk_encoder_name,
                config.chunk_encoder_name,
                config.chunk_encoder_pooling,
            )
            model.check_chunk_encoder(encoder)
        else:
            encoder = model.detach_chunk_encoder()

        return cls(
            options,
            family,
            encoder=encoder,
            rule=config.chunking_rule(),
            weights=digest_of(model_identity(model, encoder.tokenizer), encoder_identity(encoder)),
        )

    @classmethod
    def _open_over(cls, options: VectorModelArguments, name: str) -> VectorModels:
        """Opens a sentence encoder that is given as the model: a new model is made over it.

        Raises:
            ValueError: for another encoder in ``--chunk_encoder``.
        """
        if options.chunk_encoder is not None:
            raise ValueError(
                f"--model {name!r} is no NextLevelBERT, but an encoder, and --chunk_encoder"
                f" {options.chunk_encoder!r} is a second one. Leave one of them out."
            )

        options.model = "untrained"
        options.chunk_encoder = name
        logger.warning(
            "%s is an encoder: a new %s is trained over its vectors (--model untrained).",
            name,
            options.model_type,
        )
        return cls._open_new(options)

    @classmethod
    def _open_new(cls, options: VectorModelArguments) -> VectorModels:
        """Opens the sentence encoder of a new model."""
        encoder = load_chunk_encoder(options.chunk_encoder or "minilm", options.chunk_encoder_name)
        limit = encoder.max_chunk_size
        size = options.chunk_size
        if size is None:
            size = min(256, limit or 256, encoder.tokenizer.model_max_length)

        mode: Literal["fixed", "sentences"] = "fixed"
        if options.model_type == "hate":
            mode = "sentences"

        rule = ChunkingRule.from_tokenizer(encoder.tokenizer, size, mode, max_chunk_size=limit)
        return cls(
            options,
            options.model_type,
            encoder=encoder,
            rule=rule,
            weights=encoder_identity(encoder),
        )

    def encode(self, args: FinetuningArguments, texts: Iterable[str]) -> dict[str, torch.Tensor]:
        """Encodes texts into a corpus in ``--cache_dir``, or reads the corpus if it is there.

        Args:
            args: training arguments, of which the output folder and the device are used.
            texts: texts in any order; equal texts are encoded once.

        Returns:
            Chunk vectors ``[n, D]`` of every text, in float16.

        Raises:
            ValueError: for a text without a token.
        """
        distinct = list(dict.fromkeys(texts))
        recipe = [encoder_identity(self.encoder), str(self.rule), self.options.encoder_dtype]
        folder = Path(self.options.cache_dir or f"{args.output_dir}/vectors")
        encoder = copy.deepcopy(self.encoder)  # what is published keeps its precision
        dtype = getattr(torch, self.options.encoder_dtype)
        encoder.encoder.to(device=args.device, dtype=dtype)
        documents = ((str(index), text) for index, text in enumerate(distinct))
        name = digest_of(*recipe, *distinct)[:16]
        prompt = encoder.prompts.text()  # as a model that reads token ids does
        corpus = encode_corpus(documents, encoder, self.rule, folder=folder / name, prompt=prompt)
        vectors = {text: corpus[str(index)].plain for index, text in enumerate(distinct)}

        empty = [text for text, chunks in vectors.items() if len(chunks) == 0]
        if empty:
            raise ValueError(
                f"{len(empty)} texts contain no token, such as {short(empty[0])}. Leave their rows"
                " out."
            )

        return vectors

    def new_model(self, head: Head, **config: object) -> Any:
        """Opens the model over stored vectors for a new training, without its chunk encoder."""
        config["include_chunk_encoder"] = False
        model_class = MODELS[self.family, head]
        if self.options.model == "untrained":
            chunk_size = self.rule.chunk_size
            return model_class.from_chunk_encoder(self.encoder, chunk_size=chunk_size, **config)
        return model_class.from_pretrained(
            self.options.model, ignore_mismatched_sizes=True, **config
        )

    def open_trained(self, folder: Path, head: Head) -> Any:
        """Opens the model in the folder of a seed with its chunk encoder, to be saved whole."""
        model = MODELS[self.family, head].from_pretrained(folder)
        model.base_model.attach_chunk_encoder(self.encoder)
        return model

    @property
    def base_model(self) -> str | None:
        """Returns the Hub name of the model, or of its chunk encoder; None for folders."""
        name = name_on_hub(self.options.model)
        if name not in (None, "untrained"):
            return name
        if "/" in self.encoder.name:
            return self.encoder.name
        return None


def _check_fixed_options(options: VectorModelArguments, family: str, *, is_alone: bool) -> None:
    """Refuses options that a checkpoint fixes."""
    fixed: dict[str, object] = {"chunk_size": options.chunk_size}
    if not is_alone:
        fixed["chunk_encoder"] = options.chunk_encoder
    if options.model_type not in (family, FAMILIES[0]):
        fixed["model_type"] = options.model_type

    for option_name, value in fixed.items():
        if value is not None:
            raise ValueError(
                f"--{option_name} {value} cannot be changed for --model {options.model!r}: the"
                " checkpoint fixes it. Remove the option."
            )
