"""Sentence encoders from disk or the Hub, and new document models over them."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args

import torch
from huggingface_hub import snapshot_download
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import AutoModel, BertConfig, PreTrainedModel, PreTrainedTokenizerFast

from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder
from .chunking import ChunkingRule, special_token_ids
from .configuration_nextlevelbert import PoolingMode, StaticEmbeddingConfig
from .pretrained import (
    NO_LENGTH_LIMIT,
    load_tokenizer,
    nearest,
    refuse_remote_code,
    with_attention_dropout,
)
from .static_encoders import STATIC_MODELS, new_chunk_encoder

_LOADING_ARGUMENTS = (
    "revision",
    "token",
    "cache_dir",
    "subfolder",
    "local_files_only",
    "trust_remote_code",
)


def load_chunk_encoder(
    name_or_path: str | PathLike,
    name: str | None = None,
    pooling: PoolingMode | None = None,
    **loading: Any,
) -> LoadedChunkEncoder:
    """Loads a sentence-transformers model: a transformer with pooling, or a `StaticEmbedding`.

    Vectors are normalised if the model normalises them. `Dense` layers after pooling become part
    of the encoder, as does a default prompt, which the tokenizer then puts before every chunk.

    Args:
        name_or_path: Hub name or folder of the encoder, or of a document model of this package that
            holds its chunk encoder.
        name: public name of the encoder, if `name_or_path` is a folder on this machine.
        pooling: pooling that makes one vector of the token vectors, in place of the encoder's own
            pooling; ``"cls"`` is HATE's. A plain transformers model, which does not say how it
            pools, needs this argument; the vectors of such a model are not normalised.
        **loading: further arguments as in `from_pretrained`: `revision`, `token`, `cache_dir`,
            `subfolder` and `local_files_only`. Code of an encoder is never run.

    Returns:
        The encoder with its tokenizer, in float32 on the CPU.

    Raises:
        FileNotFoundError: if there is no encoder of that name.
        TypeError: for an unknown argument.
        ValueError: for an unsupported step, an unknown pooling, a model that does not say how it
            pools, or `trust_remote_code=True`.
    """
    check_loading_arguments(loading)
    loading.pop("trust_remote_code", None)

    # Importing sentence-transformers takes seconds. A checkpoint that is opened with its own code
    # does not need it: transformers asks for everything that is imported outside of `try`.
    try:
        from sentence_transformers.util import load_file_path
    except ImportError as error:
        raise ImportError(
            "sentence-transformers opens encoders: pip install sentence-transformers"
        ) from error

    path = fspath(name_or_path)
    subfolder = loading.pop("subfolder", None)
    if subfolder:
        path = _path_of_subfolder(path, subfolder, loading)
    # sentence-transformers has another name for `cache_dir`.
    by_sentence_transformers = {
        {"cache_dir": "cache_folder"}.get(key, key): value for key, value in loading.items()
    }
    with _named_errors(path):
        modules_file = load_file_path(path, "modules.json", **by_sentence_transformers)
        config_file = load_file_path(path, "config.json", **by_sentence_transformers)

    stored = {}
    if config_file is not None:
        stored = json.loads(Path(config_file).read_text(encoding="utf-8"))
    if "chunk_encoder_config" in stored:
        return _from_document_model(path, name, loading)

    public_name = name or _public_name(path)
    if stored.get("model_type") in STATIC_MODELS:
        return _from_static_model(path, stored["model_type"], public_name, loading)
    if modules_file is None and config_file is not None and pooling is None:
        # sentence-transformers would take the mean, without normalisation.
        raise ValueError(
            f"{path!r} has no modules.json, which says how it pools. Give pooling='cls'"
            " (--sentence_pooling cls) or another mode for vectors that are not normalised; or the"
            " model becomes a sentence encoder by SentenceTransformer(modules=[Transformer(path),"
            " Pooling(size, 'mean'), Normalize()]).save(…)."
        )
    source = _open_sentence_transformer(path, by_sentence_transformers)
    return _from_sentence_transformer(source, path, public_name, pooling)


def check_loading_arguments(loading: dict[str, Any]) -> None:
    """Checks the further arguments of `load_chunk_encoder`.

    Args:
        loading: the arguments by name.

    Raises:
        TypeError: an argument is unknown.
        ValueError: code of the encoder is to be run.
    """
    for argument in loading:
        if argument not in _LOADING_ARGUMENTS:
            names = {*_LOADING_ARGUMENTS, "name", "pooling"}
            raise TypeError(
                f"load_chunk_encoder has no argument {argument!r}{nearest(argument, names)}. Apart"
                f" from name and pooling, it has {', '.join(_LOADING_ARGUMENTS)}."
            )
    refuse_remote_code(loading.get("trust_remote_code"))


def _public_name(path: str) -> str:
    """Returns the name of an encoder on the Hub, or the name of its folder without the path."""
    if Path(path).is_dir():
        return Path(path).name
    return path


def _path_of_subfolder(path: str, subfolder: str, loading: dict[str, Any]) -> str:
    """Returns the folder of an encoder within a folder or a repository, which is downloaded."""
    folder = path
    if not Path(path).is_dir():
        with _named_errors(path):
            folder = snapshot_download(path, allow_patterns=f"{subfolder}/*", **loading)
    inner = Path(folder) / subfolder
    if not inner.is_dir():
        raise FileNotFoundError(
            f"There is no folder {subfolder!r} in {path!r}. Give the name of one as subfolder, or"
            " leave subfolder out."
        )
    return str(inner)


def _from_static_model(
    path: str, model_type: str, public_name: str, loading: dict[str, Any]
) -> LoadedChunkEncoder:
    """Opens a static encoder that this package has saved."""
    model = STATIC_MODELS[model_type].from_pretrained(path, dtype=torch.float32, **loading)
    encoder = new_chunk_encoder(model.config)
    encoder.model = model
    return LoadedChunkEncoder(
        encoder=encoder.eval(),
        tokenizer=load_tokenizer(path, config=model.config, **loading),
        name=public_name,
        fingerprint=encoder.fingerprint(),
    )


def _from_document_model(
    path: str, name: str | None, loading: dict[str, Any]
) -> LoadedChunkEncoder:
    """Opens the chunk encoder within a document model of this package."""
    model: Any = AutoModel.from_pretrained(path, dtype=torch.float32, **loading)
    if model.chunk_encoder is None:
        raise ValueError(
            f"{path!r} holds no chunk encoder. Load the encoder that it was made with:"
            f" {model.config.chunk_encoder_name!r}."
        )
    source = model.detach_chunk_encoder()
    if name is not None:
        source.name = name
    return source


def _from_sentence_transformer(
    source: Any, path: str, public_name: str, pooling: PoolingMode | None
) -> LoadedChunkEncoder:
    """Takes over an encoder of ``Transformer → Pooling → Dense … → Normalize``, or a static one."""
    steps = list(source)
    own_pooling, dense, normalize = _read_steps(path, steps)
    if type(steps[0]).__name__ == "StaticEmbedding":
        network = steps[0]
        config, tokenizer = _static_parts(network)
    else:
        network = steps[0].auto_model
        config = network.config
        tokenizer = steps[0].tokenizer

    further_steps = {}
    if dense:
        further_steps["dense"] = [
            {
                "in_features": step.in_features,
                "out_features": step.out_features,
                "bias": step.bias,
                "activation": type(step.activation_function).__name__,
            }
            for step in dense  # the arguments of a `DenseLayer`
        ]

    if source.default_prompt_name is not None:
        if not getattr(steps[1], "include_prompt", False):
            raise ValueError(
                f"{path!r} puts a prompt before every text, but its pooling leaves the prompt out,"
                " which is not supported. Remove default_prompt_name from"
                " config_sentence_transformers.json."
            )
        prompt = source.prompts[source.default_prompt_name]
        further_steps["prompt"] = prompt
        tokenizer = _prompting(tokenizer, prompt)

    if further_steps:
        config.sentence_steps = further_steps

    encoder = new_chunk_encoder(config, pooling or own_pooling, normalize)
    weights = network.state_dict()
    encoder.model.load_state_dict({key: weights[key] for key in encoder.model.state_dict()})
    for layer, step in zip(encoder.dense, dense, strict=True):
        layer.load_state_dict(step.state_dict())
    return LoadedChunkEncoder(
        encoder=encoder,
        tokenizer=tokenizer,
        name=public_name,
        fingerprint=encoder.fingerprint(),
    )


def _read_steps(path: str, steps: list[Any]) -> tuple[PoolingMode, list[Any], bool]:
    """Returns how a model pools, its Dense layers, and whether it normalises."""
    names = [type(step).__name__ for step in steps]
    own_pooling: Any = None
    dense = steps[1:]
    if names[0] == "StaticEmbedding":
        own_pooling = "mean"
    elif names[0] == "Transformer" and len(steps) > 1:
        own_pooling = getattr(steps[1], "pooling_mode", None)
        dense = steps[2:]
    normalize = names[-1] == "Normalize"
    if normalize:
        dense = dense[:-1]

    if own_pooling not in get_args(PoolingMode) or not all(map(_is_plain_dense, dense)):
        raise ValueError(
            f"{path!r} consists of {' → '.join(names)} with the pooling {own_pooling!r}. Supported"
            f" are a Transformer with Pooling ({', '.join(get_args(PoolingMode))}) or a"
            " StaticEmbedding, followed by plain Dense layers and Normalize, if any."
        )
    return own_pooling, dense, normalize


def _open_sentence_transformer(path: str, arguments: dict[str, Any]) -> Any:
    """Opens a model by sentence-transformers; its code is never run."""
    from sentence_transformers import SentenceTransformer

    with _named_errors(path):
        return SentenceTransformer(
            path,
            device="cpu",
            model_kwargs={"dtype": torch.float32},
            trust_remote_code=False,
            **arguments,
        )


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Turns errors of the Hub's client into a FileNotFoundError that says what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        if Path(path).is_dir():
            raise
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(
            f"There is no folder {path!r}, and the Hub gives no encoder of that name ({reason})."
            " Give the folder of an encoder (--chunk_encoder)."
        ) from error


def _is_plain_dense(step: Any) -> bool:
    """Returns whether a step is a `Dense` layer over the sentence vector and nothing else."""
    return (
        type(step).__name__ == "Dense"
        and step.module_input_name == "sentence_embedding"
        and not step.use_residual
    )


def _static_parts(module: Any) -> tuple[StaticEmbeddingConfig, PreTrainedTokenizerFast]:
    """Returns configuration and tokenizer of a `StaticEmbedding`, without special tokens."""
    backend = Tokenizer.from_str(module.tokenizer.to_str())
    backend.post_processor = TemplateProcessing(single="$A", pair="$A $B:1")
    backend.no_truncation()

    vocabulary = backend.get_vocab()
    role_of = {
        "[UNK]": "unk_token",
        "<unk>": "unk_token",
        "[PAD]": "pad_token",
        "<pad>": "pad_token",
    }
    special_tokens = {role: token for token, role in role_of.items() if token in vocabulary}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=NO_LENGTH_LIMIT, **special_tokens
    )

    rows, size = module.embedding.weight.shape
    highest = max(vocabulary.values())
    if rows <= highest:
        raise ValueError(f"The tokenizer has ids up to {highest}, but the table has {rows} rows.")
    config = StaticEmbeddingConfig(
        vocab_size=rows,
        hidden_size=size,
        pad_token_id=tokenizer.pad_token_id,
        unk_token_id=tokenizer.unk_token_id,
    )
    return config, tokenizer


def _prompting(tokenizer: PreTrainedTokenizerFast, prompt: str) -> PreTrainedTokenizerFast:
    """Returns a tokenizer that adds a prompt's tokens after the special tokens before a text."""

    def ids_of(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    prompt_ids = ids_of(prompt.rstrip())
    # Some tokenizers make the space before a word a part of its token.
    expected = [prompt_ids + ids_of("word"), prompt_ids + ids_of(" word")]
    if ids_of(f"{prompt}word") not in expected:
        raise ValueError(
            f"The prompt {prompt!r} would run into the first word of a text. End it with a space."
        )

    prefix, suffix = special_token_ids(tokenizer)
    special_tokens = []
    for name, ids in {"[BEFORE]": [*prefix, *prompt_ids], "[AFTER]": list(suffix)}.items():
        tokens = tokenizer.convert_ids_to_tokens(ids)
        special_tokens.append({"id": name, "ids": ids, "tokens": tokens})
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(
        single="[BEFORE] $A [AFTER]",
        pair="[BEFORE] $A [AFTER] $B:1 [AFTER]:1",
        special_tokens=special_tokens,
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


def as_loaded_encoder(
    chunk_encoder: str | PathLike | LoadedChunkEncoder, loading: dict[str, Any]
) -> LoadedChunkEncoder:
    """Loads a chunk encoder by its name or folder; returns an encoder that is already loaded.

    Args:
        chunk_encoder: name, folder, or loaded encoder.
        loading: arguments of `load_chunk_encoder`, such as `revision`.

    Raises:
        ValueError: there are such arguments for an encoder that is already loaded.
    """
    if not isinstance(chunk_encoder, LoadedChunkEncoder):
        return load_chunk_encoder(chunk_encoder, **loading)
    if loading:
        raise ValueError(
            f"The chunk encoder is already loaded, so that {', '.join(loading)} would have no"
            " effect. Give these arguments to load_chunk_encoder."
        )
    return chunk_encoder


def bert_over_vectors(hidden_size: int, layers: int, positions: int = 512) -> BertConfig:
    """Describes a new BERT over chunk vectors, with a feed-forward layer of four times the width.

    Args:
        hidden_size: dimensions of the vectors. Each attention head has 32 dimensions; if 32 does
            not divide the size, there is one head.
        layers: number of layers.
        positions: rows of the position table.

    Returns:
        The configuration, without attention dropout and without a word table.
    """
    heads = 1
    if hidden_size % 32 == 0:
        heads = hidden_size // 32
    return BertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        max_position_embeddings=positions,
        num_attention_heads=heads,
        intermediate_size=4 * hidden_size,
        attention_probs_dropout_prob=0.0,
        vocab_size=1,  # no word table
    )


def new_model_over(
    source: LoadedChunkEncoder,
    model_class: type[PreTrainedModel],
    chunk_size: int,
    fields: dict[str, Any],
) -> PreTrainedModel:
    """Makes a new model over the vectors of a chunk encoder, which the model holds by default.

    Args:
        source: the chunk encoder.
        model_class: the class of the new model.
        chunk_size: most tokens in a chunk.
        fields: further fields of the configuration, ``chunking`` among them.

    Returns:
        The model in evaluation mode.
    """
    rule = ChunkingRule.from_tokenizer(
        source.tokenizer,
        chunk_size=chunk_size,
        mode=fields["chunking"],
        max_chunk_size=source.max_chunk_size,
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
    config = model_class.config_class(**(values | fields))

    model = model_class(config)
    base_model = model.base_model
    base_model.tokenizer = source.tokenizer
    if base_model.chunk_encoder is not None:
        base_model.attach_chunk_encoder(source)
    return model.eval()


def layers_over(
    encoder: ChunkEncoder,
    *,
    can_copy: bool,
    num_hidden_layers: int | None,
    attention_dropout: float,
) -> dict[str, Any]:
    """Returns the configuration of the layers over the vectors of a chunk encoder.

    Args:
        encoder: the chunk encoder.
        can_copy: true if the layers are like those of the chunk encoder. Otherwise they are a new
            BERT's.
        num_hidden_layers: number of layers (default: all of the chunk encoder's, or two new ones).
        attention_dropout: dropout on their attention.
    """
    if can_copy:
        config = encoder.model.config
    else:
        config = bert_over_vectors(encoder.hidden_size, layers=2)

    layers = with_attention_dropout(config, attention_dropout)
    layers.pop("sentence_steps", None)  # they follow the chunk encoder's layers only
    if num_hidden_layers is not None:
        layers["num_hidden_layers"] = num_hidden_layers
    return layers


def copy_layers(source: ChunkEncoder, encoder: nn.Module) -> None:
    """Copies the chunk encoder's layers; further positions keep the new encoder's values.

    Args:
        source: the chunk encoder.
        encoder: the new encoder over chunks, with the same or fewer layers.

    Raises:
        ValueError: the chunk encoder has no such layer.
    """
    weights = source.model.state_dict()
    state = encoder.state_dict()
    for name, values in state.items():
        copied = weights.get(name)
        if copied is None or copied.shape[1:] != values.shape[1:]:
            shape = f"{name} {[*values.shape]}"
            raise ValueError(
                f"The chunk encoder has no {shape} to copy. Give fewer num_hidden_layers, or"
                " random_layers=True."
            )
        if values.ndim == 0:
            state[name] = copied
            continue
        rows = len(values)
        if "position" in name:
            rows = min(rows, len(copied))
        # The source may be on an accelerator.
        state[name] = torch.cat([copied[:rows].to(values.device), values[rows:]])
    encoder.load_state_dict(state)
