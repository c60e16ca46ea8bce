"""Sentence encoders from disk or the Hub, with what a document model has to know about them."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from .chunk_encoder import STEPS, ChunkEncoder
from .chunking import special_token_ids
from .hybrid_encoder import HybridChunkEncoder, HybridConfig, HybridModel, part_config
from .pooling import PoolingMode
from .pretrained import load_tokenizer, usable_positions
from .static_encoder import HashedTfidfModel, StaticEmbeddingConfig


@dataclass
class LoadedChunkEncoder:
    """A sentence encoder read from disk or the Hub, with what a document model has to know about it.

    Attributes:
        encoder: in float32 on the CPU.
        tokenizer: that of the encoder.
        name: where others find it; never a path of this machine.
        fingerprint: see `ChunkEncoder.fingerprint`.
    """

    encoder: ChunkEncoder
    tokenizer: PreTrainedTokenizerBase
    name: str
    fingerprint: str

    @property
    def max_chunk_size(self) -> int | None:
        return usable_positions(self.encoder.model.config)

    @property
    def layers(self) -> PreTrainedConfig | None:
        """The configuration of its layers; None if it has none, or its vectors have another size than they read."""
        config = copy.deepcopy(self.encoder.model.config)
        if not self.encoder.has_layers or self.encoder.hidden_size != config.hidden_size:
            return None
        config.__dict__.pop(STEPS, None)  # they follow the chunk encoder's layers only
        return config


def load_chunk_encoder(
    name_or_path: str | os.PathLike[str], name: str | None = None, pooling: PoolingMode | None = None
) -> LoadedChunkEncoder:
    """Loads a sentence-transformers model: a transformer with pooling, or a `StaticEmbedding`; normalised or not.

    `Dense` layers after pooling become part of it. So does a default prompt, whose tokens the tokenizer then puts
    before every chunk, and which takes room in it.

    Args:
        name_or_path: a Hub name or a folder; also of a document model of this package that holds its chunk encoder.
        name: where others find this encoder, if `name_or_path` is a folder of this machine.
        pooling: how a vector is made of token vectors, in place of the encoder's own way; ``"cls"`` is HATE's.

    Raises:
        ImportError: without sentence-transformers.
        ValueError: if there is no such model, it does not say how it pools, it has a step that is not supported, or
            a file of it is missing, damaged or not what was saved (each is named).
    """
    name_or_path = os.fspath(name_or_path)
    return _load(name_or_path, name, pooling)


def _load(name_or_path: str, name: str | None, pooling: PoolingMode | None) -> LoadedChunkEncoder:
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.util import load_file_path
    except ImportError as error:
        raise ImportError(
            "Reading a sentence encoder needs sentence-transformers: pip install nextlevelbert"
        ) from error
    modules, plain = (load_file_path(name_or_path, file) for file in ("modules.json", "config.json"))
    stored = {} if plain is None else _stored(plain)
    if "chunk_encoder_config" in stored:
        return _load_from_checkpoint(name_or_path, stored, name)
    for own_model in (HybridModel, HashedTfidfModel):
        if modules is None and stored.get("model_type") == own_model.config_class.model_type:
            return _load_own(name_or_path, name, own_model)
    if modules is None and plain is not None:
        raise ValueError(
            f"The chunk encoder {name_or_path!r} has no modules.json, which says how it pools and whether it "
            "normalises. Give a sentence-transformers model; a plain transformers model becomes one by "
            "SentenceTransformer(modules=[Transformer(path), Pooling(hidden_size, 'mean'), Normalize()]).save(folder)."
        )
    try:
        source = SentenceTransformer(name_or_path, device="cpu", model_kwargs={"dtype": torch.float32})
    except Exception as error:  # a damaged file can fail in any way, tokenizers in none of its own
        if modules is not None:  # there it is, but it cannot be read
            raise ValueError(
                f"Cannot load the chunk encoder {name_or_path!r}: {error} If a file of it is damaged, get it "
                "again. Code that comes with a model (trust_remote_code) is never run; give a sentence-transformers "
                "model of an architecture that transformers has."
            ) from error
        raise ValueError(
            f"Cannot load the chunk encoder {name_or_path!r}: no such folder, and not on the Hub or in its cache. "
            "Give the path of a saved sentence-transformers model, or a name such as "
            "'sentence-transformers/all-MiniLM-L6-v2'."
        ) from error
    own, dense, normalize = _read_modules(source, name_or_path)
    if own is None:
        config, tokenizer = _static_parts(source[0], name_or_path, pooling)
        backbone, own = source[0], "mean"
    else:
        config, tokenizer = source[0].auto_model.config, source[0].tokenizer
        backbone = source[0].auto_model
    steps: dict[str, Any] = {"dense": [_dense_arguments(layer) for layer in dense]} if dense else {}
    if source.default_prompt_name is not None:
        steps["prompt"] = source.prompts[source.default_prompt_name]
        tokenizer = _prompting(tokenizer, steps["prompt"], name_or_path)
    if steps:
        setattr(config, STEPS, steps)
    encoder = ChunkEncoder(config, pooling or own, normalize)
    wanted = encoder.model.state_dict().keys()
    encoder.model.load_state_dict({key: value for key, value in backbone.state_dict().items() if key in wanted})
    for ours, theirs in zip(encoder.dense, dense, strict=True):
        ours.load_state_dict(theirs.state_dict())
    return LoadedChunkEncoder(encoder, tokenizer, _public(name_or_path, name), encoder.fingerprint())


def _public(name_or_path: str, name: str | None) -> str:
    """The name under which others find an encoder: never a path of this machine."""
    return name or (Path(name_or_path).name if Path(name_or_path).is_dir() else name_or_path)


def _stored(config: str) -> dict[str, Any]:
    """The fields of a ``config.json``; none where it cannot be read, which those say who need more of it."""
    try:
        stored = json.loads(Path(config).read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) else {}


def _load_from_checkpoint(name_or_path: str, stored: dict[str, Any], name: str | None) -> LoadedChunkEncoder:
    """The chunk encoder within a document model of this package."""
    found: dict[str, torch.Tensor] = {}
    for weights in _weight_files(name_or_path):
        with safe_open(weights, framework="pt") as file:
            names = [key for key in file.keys() if "chunk_encoder." in key]
            found |= {key.split("chunk_encoder.", 1)[1]: file.get_tensor(key).float() for key in names}
    if not found:
        raise ValueError(
            f"The checkpoint {name_or_path!r} holds no chunk encoder; it was made with "
            f"{stored.get('chunk_encoder_name')!r}: give that."
        )
    try:
        config = part_config(stored["chunk_encoder_config"])
        kind = HybridChunkEncoder if config.model_type == HybridConfig.model_type else ChunkEncoder
        if (pooling := stored["chunk_encoder_pooling"]) not in get_args(PoolingMode):
            raise TypeError(f"chunk_encoder_pooling is {pooling!r}")
        encoder = kind(config, pooling, stored["chunk_encoder_normalize"])
        encoder.load_state_dict(found)
    except (StrictDataclassError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"The config.json of the checkpoint {name_or_path!r} does not describe the chunk encoder that its weights "
            f"hold ({error!r}). It is damaged or was changed: get the checkpoint again."
        ) from error
    tokenizer = load_tokenizer(name_or_path, config=encoder.model.config)
    own = name or stored.get("chunk_encoder_name") or _public(name_or_path, None)
    # In half precision on disk, they would hash to something else than the weights that they were made from.
    return LoadedChunkEncoder(
        encoder, tokenizer, own, stored.get("chunk_encoder_fingerprint") or encoder.fingerprint()
    )


def _weight_files(name_or_path: str) -> list[str]:
    """The files of a checkpoint's weights, which may be one or several."""
    from sentence_transformers.util import load_file_path

    whole, index = (load_file_path(name_or_path, f"model.safetensors{end}") for end in ("", ".index.json"))
    if whole is not None or index is None:
        return [whole] if whole is not None else []
    names = set(json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"].values())
    return [str(load_file_path(name_or_path, name)) for name in sorted(names)]


def _load_own(name_or_path: str, name: str | None, kind: type[PreTrainedModel]) -> LoadedChunkEncoder:
    """An encoder of several, or hashed TF-IDF: the kinds that sentence-transformers does not have."""
    config = kind.config_class.from_pretrained(name_or_path)
    try:
        model, info = kind.from_pretrained(name_or_path, config=config, dtype=torch.float32, output_loading_info=True)
    except (StrictDataclassError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"The config.json of the chunk encoder {name_or_path!r} does not describe its weights ({error!r}). It is "
            "damaged or was changed: get it again."
        ) from error
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"The chunk encoder {name_or_path!r} lacks its weight {missing[0]}: get it again.")
    encoder = (HybridChunkEncoder if kind is HybridModel else ChunkEncoder)(model.config)
    encoder.model.load_state_dict(model.state_dict())
    tokenizer = load_tokenizer(name_or_path, config=config)
    return LoadedChunkEncoder(encoder, tokenizer, _public(name_or_path, name), encoder.fingerprint())


def _is_static(modules: str) -> bool:
    """Whether a ``modules.json`` begins with a table of token vectors."""
    try:
        return str(json.loads(Path(modules).read_text(encoding="utf-8"))[0]["type"]).endswith(".StaticEmbedding")
    except (ValueError, LookupError, TypeError):
        return False  # what is wrong with the file is said by those who need more of it


def _static_parts(
    module: Any, name: str, pooling: PoolingMode | None
) -> tuple[StaticEmbeddingConfig, PreTrainedTokenizerBase]:
    """Configuration and tokenizer of a `StaticEmbedding`; the tokenizer adds no special tokens, as there.

    Raises:
        ValueError: for another pooling than the mean, or a table that does not fit the tokenizer.
    """
    if pooling not in (None, "mean"):
        raise ValueError(f"The static chunk encoder {name!r} has no token order to pool by {pooling!r}; use 'mean'.")
    rows, size = module.embedding.weight.shape
    highest = max(module.tokenizer.get_vocab().values(), default=-1)
    if highest < 0 or rows <= highest or size == 0:
        raise ValueError(
            f"The static chunk encoder {name!r} has a table of {rows} x {size}, but its tokenizer has ids up to "
            f"{highest}. Its tokenizer.json is that of another model: save the two together."
        )
    plain = Tokenizer.from_str(module.tokenizer.to_str())
    plain.post_processor = TemplateProcessing(single="$A", pair="$A $B")
    plain.no_truncation()
    special = {"unk_token": ("[UNK]", "<unk>"), "pad_token": ("[PAD]", "<pad>")}
    words = plain.get_vocab()
    known = {key: token for key, tokens in special.items() for token in tokens if token in words}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=int(1e30), **known)
    ids = {"pad_token_id": tokenizer.pad_token_id, "unk_token_id": tokenizer.unk_token_id}
    return StaticEmbeddingConfig(vocab_size=rows, hidden_size=size, **ids), tokenizer


def _transformer_config(name: str, modules: str) -> PreTrainedConfig:
    """The configuration of the transformer within a sentence-transformers model, where its ``modules.json`` says."""
    try:
        folder = str(json.loads(Path(modules).read_text(encoding="utf-8"))[0].get("path") or "")
    except (ValueError, LookupError, AttributeError) as error:
        raise ValueError("Its modules.json is not a list of modules.") from error
    # Without the last argument transformers would ask on the terminal whether to run code that comes with the model.
    return AutoConfig.from_pretrained(name, subfolder=folder, trust_remote_code=False)


def _read_modules(source: Any, name: str) -> tuple[PoolingMode | None, list[Any], bool]:
    """Pooling mode (None for a static encoder), Dense layers, and normalisation.

    Raises:
        ValueError: naming what is not supported.
    """
    kinds = [type(module).__name__ for module in source]
    first = 1 if kinds[:1] == ["StaticEmbedding"] else 2
    normalize = kinds[-1] == "Normalize"
    last = len(kinds) - normalize
    if (first == 2 and kinds[:2] != ["Transformer", "Pooling"]) or set(kinds[first:last]) - {"Dense"}:
        raise ValueError(
            f"The chunk encoder {name!r} consists of {' → '.join(kinds)}; supported are Transformer → Pooling and "
            "StaticEmbedding, followed by any number of Dense and one Normalize or none. Choose such a model, or "
            "encode with it yourself and give inputs_embeds."
        )
    dense = [source[number] for number in range(first, last)]
    for layer in dense:
        if (layer.module_input_name, layer.module_output_name) != ("sentence_embedding",) * 2 or layer.use_residual:
            raise ValueError(
                f"The chunk encoder {name!r} has a Dense over {layer.module_input_name!r} to "
                f"{layer.module_output_name!r}{' with a residual' if layer.use_residual else ''}; supported is Dense "
                "over sentence_embedding, without a residual. Choose another model, or encode with it yourself and "
                "give inputs_embeds."
            )
    mode = None if first == 1 else source[1].pooling_mode
    if mode not in (None, *get_args(PoolingMode)):
        raise ValueError(
            f"The chunk encoder {name!r} pools by {mode!r}; supported is one of {', '.join(get_args(PoolingMode))}."
        )
    if source.default_prompt_name is not None and (first == 1 or not source[1].include_prompt):
        raise ValueError(
            f"The chunk encoder {name!r} puts the prompt {source.default_prompt_name!r} before every text, which "
            "is supported for a Transformer whose Pooling has include_prompt=True. To use it without the prompt, set "
            "its default_prompt_name to None and save it."
        )
    return mode, dense, normalize


def _dense_arguments(layer: Any) -> dict[str, Any]:
    """The arguments of a `DenseLayer` that computes the same."""
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "bias": layer.bias,
        "activation": type(layer.activation_function).__name__,
    }


def _prompting(tokenizer: PreTrainedTokenizerBase, prompt: str, name: str) -> PreTrainedTokenizerBase:
    """A tokenizer that adds the tokens of a prompt where it adds special tokens, after those before the text.

    Raises:
        ValueError: if the prompt's tokens depend on what follows it.
    """
    ids = tokenizer(prompt.rstrip(), add_special_tokens=False)["input_ids"]
    for probe in ("word", " word"):  # some tokenizers keep the space in the token
        joined, alone = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt + "word", probe))
        if joined == ids + alone:
            break
    else:
        raise ValueError(
            f"The prompt {prompt!r} of the chunk encoder {name!r} runs into the first word of a text, so it has no "
            "tokens of its own. Let it end with a space or a colon, or set default_prompt_name to None, and save it."
        )
    prefix, suffix = special_token_ids(tokenizer)
    around = {"[BEFORE]": [*prefix, *ids], "[AFTER]": [*suffix]}
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(
        single=" ".join(["[BEFORE] $A", *["[AFTER]"] * bool(suffix)]),
        pair=" ".join(["[BEFORE] $A", *["[AFTER]"] * bool(suffix), "$B:1", *["[AFTER]:1"] * bool(suffix)]),
        special_tokens=[
            {"id": key, "ids": found, "tokens": tokenizer.convert_ids_to_tokens(found)}
            for key, found in around.items() if found
        ],
    )  # fmt: skip
    # A class of its own, such as BertTokenizer, would put back the special tokens of that class when it is loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        **tokenizer.special_tokens_map,
    )
