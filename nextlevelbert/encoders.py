"""Sentence encoders from disk or the Hub, and new document models over them."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from .models.chunk_encoder import (
    ChunkEncoder,
    LoadedChunkEncoder,
    PoolingMode,
    StaticEmbeddingConfig,
)
from .models.chunking import ChunkingRule, special_token_ids
from .models.hybrid_encoder import STATIC_MODELS
from .models.pretrained import LOADING_ARGUMENTS, NO_LENGTH_LIMIT, load_tokenizer


def static_checkpoint() -> str:
    """Folder of nextlevelbert-static (26 MB), which comes with the package: for every
    `from_pretrained` and `--model`.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> import nextlevelbert
        >>> model = SentenceTransformer(nextlevelbert.static_checkpoint())
        >>> model.encode(["the text of a whole book", "and of another one"]).shape
        (2, 384)
    """
    return str(Path(__file__).with_name("static"))


def load_chunk_encoder(
    name_or_path: str | os.PathLike[str],
    name: str | None = None,
    pooling: PoolingMode | None = None,
) -> LoadedChunkEncoder:
    """Loads a sentence-transformers model: a transformer with pooling, or a `StaticEmbedding`;
    normalised or not.

    `Dense` layers after pooling become part of it, as does a default prompt, which the tokenizer
    then puts before every chunk.

    Args:
        name_or_path: a Hub name or a folder; also of a document model of this package that holds
            its chunk encoder.
        name: where others find this encoder, if `name_or_path` is a folder of this machine.
        pooling: how a vector is made of token vectors, in place of the encoder's own way; ``"cls"``
            is HATE's. A plain transformers model, which does not say how it pools, needs it; its
            vectors are not normalised.

    FileNotFoundError where there is no encoder; ValueError for an unsupported step, or an unknown
    pooling.
    """
    from sentence_transformers.util import (
        load_file_path,
    )  # takes seconds, which not every user of the package needs

    path = os.fspath(name_or_path)
    modules, plain = (load_file_path(path, file) for file in ("modules.json", "config.json"))
    stored = {} if plain is None else json.loads(Path(plain).read_text(encoding="utf-8"))
    public = name or (Path(path).name if Path(path).is_dir() else path)
    if "chunk_encoder_config" in stored:
        return _from_document_model(path, name)
    if (static := STATIC_MODELS.get(stored.get("model_type", ""))) is not None:
        model: Any = static.from_pretrained(path, dtype=torch.float32)
        encoder = ChunkEncoder(model.config)
        encoder.model = model
        tokenizer = load_tokenizer(path, config=model.config)
        return LoadedChunkEncoder(encoder.train(False), tokenizer, public, encoder.fingerprint())
    if modules is None and plain is not None and pooling is None:
        # sentence-transformers would take the mean, without normalisation
        raise ValueError(
            f"{path!r} has no modules.json, which says how it pools. Give pooling='cls'"
            " (--sentence_pooling cls) or another mode for vectors that are not normalised; or the"
            " model becomes a sentence encoder by SentenceTransformer(modules=[Transformer(path),"
            " Pooling(size, 'mean'), Normalize()]).save(…)."
        )
    return _from_sentence_transformer(path, public, pooling)


def _from_document_model(path: str, name: str | None) -> LoadedChunkEncoder:
    """The chunk encoder within a document model of this package."""
    model: Any = AutoModel.from_pretrained(path, dtype=torch.float32)
    if model.chunk_encoder is None:
        raise ValueError(
            f"{path!r} holds no chunk encoder; it was made with"
            f" {model.config.chunk_encoder_name!r}."
        )
    # In half precision on disk, they would hash to something else than the weights that they were
    # made from.
    fingerprint = model.config.chunk_encoder_fingerprint or model.chunk_encoder.fingerprint()
    public = name or model.config.chunk_encoder_name or Path(path).name
    return LoadedChunkEncoder(
        model.chunk_encoder.train(False), model.tokenizer, public, fingerprint
    )


def _from_sentence_transformer(
    path: str, public: str, pooling: PoolingMode | None
) -> LoadedChunkEncoder:
    """The encoder of ``Transformer → Pooling → Dense … → Normalize`` or ``StaticEmbedding → …``."""
    from sentence_transformers import SentenceTransformer

    options: dict[str, Any] = {"device": "cpu", "model_kwargs": {"dtype": torch.float32}}
    try:
        source = SentenceTransformer(path, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        if Path(path).is_dir():
            raise
        reason = f"and the Hub gives no encoder of that name ({str(error).splitlines()[0]})"
        raise FileNotFoundError(
            f"There is no folder {path!r}, {reason}. Give the folder of an encoder"
            " (--chunk_encoder)."
        ) from error
    steps = list(source)
    kinds = [type(step).__name__ for step in steps]
    static, normalize = kinds[0] == "StaticEmbedding", kinds[-1] == "Normalize"
    dense = steps[1 if static else 2 : len(steps) - normalize]
    mode: Any = (
        "mean"
        if static
        else getattr(steps[1], "pooling_mode", None)
        if kinds[0] == "Transformer"
        else None
    )
    plain = all(
        type(step).__name__ == "Dense"
        and step.module_input_name == "sentence_embedding"
        and not step.use_residual
        for step in dense
    )
    if mode not in get_args(PoolingMode) or not plain:
        raise ValueError(
            f"{path!r} is {' → '.join(kinds)}, pooling {mode!r}. Supported are Transformer →"
            f" Pooling by one of {', '.join(get_args(PoolingMode))}, or StaticEmbedding, then plain"
            " Dense layers and Normalize, or none."
        )
    further: dict[str, Any] = {}
    if dense:
        further["dense"] = [
            {
                "in_features": step.in_features,
                "out_features": step.out_features,
                "bias": step.bias,
                "activation": type(step.activation_function).__name__,
            }
            for step in dense
        ]
    if static:
        config, tokenizer = _static_parts(steps[0])
        network = steps[0]
    else:
        network, tokenizer = steps[0].auto_model, steps[0].tokenizer
        config = network.config
    if source.default_prompt_name is not None:
        if static or not steps[1].include_prompt:
            raise ValueError(
                f"{path!r} puts a prompt before every text and leaves it out of the pooling;"
                " remove it."
            )
        further["prompt"] = source.prompts[source.default_prompt_name]
        tokenizer = _prompting(tokenizer, further["prompt"])
    if further:
        config.sentence_steps = further
    encoder = ChunkEncoder(config, pooling or mode, normalize)
    weights = network.state_dict()
    encoder.model.load_state_dict({key: weights[key] for key in encoder.model.state_dict()})
    for layer, step in zip(encoder.dense, dense, strict=True):
        layer.load_state_dict(step.state_dict())
    return LoadedChunkEncoder(encoder, tokenizer, public, encoder.fingerprint())


def _static_parts(module: Any) -> tuple[StaticEmbeddingConfig, PreTrainedTokenizerFast]:
    """Configuration and tokenizer of a `StaticEmbedding`; the tokenizer adds no special tokens, as
    there."""
    plain = Tokenizer.from_str(module.tokenizer.to_str())
    plain.post_processor = TemplateProcessing(single="$A", pair="$A $B:1")
    plain.no_truncation()
    special, words = (
        {"unk_token": ("[UNK]", "<unk>"), "pad_token": ("[PAD]", "<pad>")},
        plain.get_vocab(),
    )
    known = {key: token for key, tokens in special.items() for token in tokens if token in words}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, model_max_length=NO_LENGTH_LIMIT, **known
    )
    rows, size = module.embedding.weight.shape
    if rows <= max(words.values()):
        raise ValueError(
            f"The tokenizer has ids up to {max(words.values())}, but the table has {rows} rows."
        )
    ids = {"pad_token_id": tokenizer.pad_token_id, "unk_token_id": tokenizer.unk_token_id}
    return StaticEmbeddingConfig(vocab_size=rows, hidden_size=size, **ids), tokenizer


def _prompting(tokenizer: PreTrainedTokenizerFast, prompt: str) -> PreTrainedTokenizerFast:
    """A tokenizer that adds the tokens of a prompt where it adds special tokens, after those before
    the text."""
    ids = tokenizer(prompt.rstrip(), add_special_tokens=False)["input_ids"]
    joined, *alone = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (f"{prompt}word", "word", " word")
    )
    if joined not in [ids + rest for rest in alone]:  # some tokenizers keep the space in the token
        raise ValueError(
            f"The prompt {prompt!r} runs into the first word of a text; let it end with a space."
        )
    prefix, suffix = special_token_ids(tokenizer)
    around = {"[BEFORE]": [*prefix, *ids], "[AFTER]": [*suffix]}
    after = ["[AFTER]"] * bool(suffix)
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(
        single=["[BEFORE]", "$A", *after],
        pair=["[BEFORE]", "$A", *after, "$B:1", *(f"{mark}:1" for mark in after)],
        special_tokens=[
            {"id": key, "ids": row, "tokens": tokenizer.convert_ids_to_tokens(row)}
            for key, row in around.items()
            if row
        ],
    )
    # A class of its own, such as BertTokenizer, would put back the special tokens of that class
    # when it is loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )


def new_document_model(
    kind: Any,
    chunk_encoder: Any,
    chunk_size: int,
    num_hidden_layers: int | None,
    random_layers: bool,
    attention_dropout: float,
    fields: dict[str, Any],
) -> Any:
    """A new model of a NextLevelBERT class; arguments as in its `from_chunk_encoder`."""
    source = (
        chunk_encoder
        if isinstance(chunk_encoder, LoadedChunkEncoder)
        else load_chunk_encoder(chunk_encoder)
    )
    encoder = source.encoder
    copied = encoder.has_layers and encoder.hidden_size == encoder.model.config.hidden_size
    start = encoder.model.config if copied else bert_over_vectors(encoder.hidden_size, layers=2)
    layers = with_attention_dropout(start, attention_dropout)
    layers.pop("sentence_steps", None)  # they follow the chunk encoder's layers only
    if (num_hidden_layers or 0) < 0:
        raise ValueError(f"num_hidden_layers must be 0 or more, got {num_hidden_layers}.")
    if num_hidden_layers is not None or fields.get("pooling") == "plain":
        layers["num_hidden_layers"] = num_hidden_layers or 0
    pooling = {} if copied else {"pooling": kind.pooling_over_static}
    model = _over(
        source,
        kind,
        chunk_size,
        {"chunking": "fixed", "encoder_config": layers, **pooling, **fields},
    )
    if copied and not random_layers and model.config.pooling != "plain":
        _copy_layers(encoder, model.base_model.encoder)
    return model


def new_hate(
    kind: Any,
    chunk_encoder: Any,
    chunk_size: int,
    hidden_size: int | None,
    num_hidden_layers: int,
    fields: dict[str, Any],
) -> Any:
    """A new model of a HATE class; arguments as in its `from_chunk_encoder`."""
    source = (
        chunk_encoder
        if isinstance(chunk_encoder, LoadedChunkEncoder)
        else load_chunk_encoder(chunk_encoder)
    )
    positions = max(512, (fields.get("max_chunks") or 0) + 1)
    layers = bert_over_vectors(
        hidden_size or source.encoder.hidden_size, num_hidden_layers, positions
    )
    return _over(
        source, kind, chunk_size, {"chunking": "sentences", "encoder_config": layers, **fields}
    )


def split_arguments(
    config_class: Any, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments for a new model: those for loading, and fields of the configuration.

    Raises:
        ValueError: for an argument that is neither; transformers would keep it in the
            configuration.
    """
    fields = config_class.__dataclass_fields__
    known = {"num_labels", "attn_implementation", *fields, *LOADING_ARGUMENTS} - {
        "dtype"
    }  # that of the weights
    if unknown := sorted(arguments.keys() - known):
        names = sorted(fields.keys() - PreTrainedConfig.__dataclass_fields__.keys())
        raise ValueError(
            f"{config_class.__name__} has no field {unknown}, only {', '.join(names)}, num_labels."
        )
    loading = {key: value for key, value in arguments.items() if key in LOADING_ARGUMENTS}
    return loading, {key: value for key, value in arguments.items() if key not in loading}


def load_backbone(name_or_path: str | os.PathLike[str], **loading: Any) -> PreTrainedModel:
    """Loads a pretrained encoder (folder or Hub name) to train further: float32, no pooler, no
    attention dropout."""
    name = str(name_or_path)
    config = AutoConfig.from_pretrained(name, trust_remote_code=False, **loading)
    config = type(config).from_dict(with_attention_dropout(config))
    arguments = {**loading, "config": config, "dtype": torch.float32, "output_loading_info": True}
    verbosity = logging.get_verbosity()
    # otherwise every load prints a table of pooler or head weights that are not used
    logging.set_verbosity_error()
    try:
        encoder, info = AutoModel.from_pretrained(name, add_pooling_layer=False, **arguments)
    except TypeError:  # architectures without a pooler do not know the argument
        encoder, info = AutoModel.from_pretrained(name, **arguments)
    finally:
        logging.set_verbosity(verbosity)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{name!r} lacks {len(missing)} weights of its {config.model_type} ({missing[0]}, …)."
        )
    return encoder


def with_attention_dropout(config: PreTrainedConfig, probability: float = 0.0) -> dict[str, Any]:
    """The configuration as a dictionary with that attention dropout, which on a CPU more than
    doubles a step."""
    names = ("attention_probs_dropout_prob", "attention_dropout")
    values = config.to_dict()
    return values | {name: probability for name in names if name in values}


def bert_over_vectors(hidden_size: int, layers: int, positions: int = 512) -> BertConfig:
    """A new BERT over chunk vectors: heads of 32 dimensions (or one), a feed-forward layer of four
    times the width."""
    return BertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        max_position_embeddings=positions,
        num_attention_heads=hidden_size // 32 if hidden_size % 32 == 0 else 1,
        intermediate_size=4 * hidden_size,
        attention_probs_dropout_prob=0.0,
        vocab_size=1,  # no word table
    )


def _over(source: LoadedChunkEncoder, kind: Any, chunk_size: int, fields: dict[str, Any]) -> Any:
    """A new model over the vectors of a chunk encoder, with its tokenizer, and its weights if they
    are saved."""
    split_arguments(kind.config_class, fields)
    rule = ChunkingRule.from_tokenizer(
        source.tokenizer, chunk_size, fields["chunking"], source.max_chunk_size
    )
    values = {
        "chunk_encoder_config": source.encoder.model.config.to_dict(),
        "chunk_encoder_name": source.name,
        "chunk_encoder_fingerprint": source.fingerprint,
        "chunk_encoder_pooling": source.encoder.pooling,
        "chunk_encoder_normalize": source.encoder.normalize,
        "chunk_size": chunk_size,
        "chunk_prefix_ids": rule.prefix_ids,
        "chunk_suffix_ids": rule.suffix_ids,
        "sentence_token_ids": rule.sentence_token_ids or None,
        "pad_token_id": source.tokenizer.pad_token_id,
    }
    model = kind(kind.config_class(**{**values, **fields}))
    model.base_model.tokenizer = source.tokenizer
    if model.base_model.chunk_encoder is not None:
        model.base_model.attach_chunk_encoder(source)
    return model.eval()


def _copy_layers(source: ChunkEncoder, encoder: torch.nn.Module) -> None:
    """Copies the chunk encoder's layers into a new encoder; further positions keep the new
    encoder's values."""
    weights, state = source.model.state_dict(), encoder.state_dict()
    for name, values in state.items():
        if name not in weights or weights[name].shape[1:] != values.shape[1:]:
            shape = f"{name} {[*values.shape]}"
            raise ValueError(
                f"The chunk encoder has no {shape} to copy: take fewer layers, or random_layers."
            )
        rows = min(len(values), len(weights[name])) if "position" in name else len(values)
        state[name] = (
            torch.cat([weights[name][:rows], values[rows:]]) if values.ndim else weights[name]
        )
    encoder.load_state_dict(state)
