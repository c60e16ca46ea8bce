"""Sentence encoders from disk or the Hub, and new document models over them."""

import re
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import torch
from huggingface_hub import snapshot_download
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from .backbones import bert_over_vectors, encoder_half, with_attention_dropout, with_layers
from .checkpoints import NO_LENGTH_LIMIT, load_tokenizer, nearest, refuse_remote_code
from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder
from .chunking import ChunkingRule
from .configuration_nextlevelbert import PoolingMode, StaticEmbeddingConfig, embedding_size
from .files import load_json
from .model_names import (
    MINILM,
    MODEL_FILES,
    SETTINGS,
    check_folder,
    full_name,
    hub_arguments,
    named_errors,
    safe_weights,
)
from .prompts import Prompts, check_prompt
from .static_encoders import STATIC_MODELS, new_chunk_encoder

# Architectures that transformers cannot build without any layers.
_NOT_WITHOUT_LAYERS = ("deberta-v2", "modernbert", "modernbert-decoder")
# Models of sentence-transformers that give no dense vector of a text, and what they give instead.
_OTHER_CLASSES = {
    "CrossEncoder": "it scores pairs of texts, and a chunk has no vector",
    "MultiVectorEncoder": "it returns a vector for each token, not for each chunk",
    "SparseEncoder": "it returns a weight for each word of its vocabulary, not a dense vector",
}
# Prompts that encoders were trained with and that their files leave to the model card.
_PROMPTS_OF_CARDS = {
    r"intfloat/(multilingual-)?e5-(small|base|large)(-v2)?": {
        "query": "query: ",
        "document": "passage: ",
    },
    r"BAAI/bge-(small|base|large)-en(-v1\.5)?": {
        "query": "Represent this sentence for searching relevant passages: ",
    },
}
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

    Vectors are normalised if the model normalises them. `Dense` layers after pooling and
    `truncate_dim` become part of the encoder, adapters are merged into its weights, and its prompts
    come with it. The files of E5 and BGE lack the prompts of their cards; these models get them by
    their names.

    Args:
        name_or_path: Hub name or folder of the encoder, or of a document model of this package that
            holds its chunk encoder, or ``"minilm"`` (see `model_path`).
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

    if name_or_path == "minilm":
        name = name or MINILM

    path = full_name(name_or_path)
    loading = {**hub_arguments(path), **loading}
    subfolder = loading.pop("subfolder", None)
    if subfolder:
        path = _path_of_subfolder(path, subfolder, loading)

    # sentence-transformers has another name for `cache_dir`.
    by_sentence_transformers = {
        {"cache_dir": "cache_folder"}.get(key, key): value for key, value in loading.items()
    }
    files = _read_files(path, by_sentence_transformers)

    stored = files.get("config.json", {})
    if "chunk_encoder_config" in stored:
        return _from_document_model(path, name, loading)

    _check_model_class(path, files)

    public_name = name or _public_name(path)
    if stored.get("model_type") in STATIC_MODELS:
        return _from_static_model(path, stored["model_type"], public_name, loading)
    if not files and Path(path).is_dir():
        check_folder(path)
    if files and "modules.json" not in files and pooling is None:
        # sentence-transformers would take the mean, without normalisation.
        raise ValueError(
            f"{path!r} has no modules.json, which says how it pools: it is no sentence encoder. It"
            " becomes one by SentenceTransformer(modules=[Transformer(path), Pooling(size, 'mean'),"
            " Normalize()]).save(…). Or give pooling='cls' or another mode (in pretrain,"
            " --sentence_pooling) for vectors that are not normalised."
        )

    sentence_transformer = _open_sentence_transformer(path, by_sentence_transformers)
    return _from_sentence_transformer(sentence_transformer, path, public_name, pooling)


def _read_files(path: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Reads the files that say what kind of model a folder or repository holds."""
    # Importing sentence-transformers takes seconds. A checkpoint that is opened with its own code
    # does not need it: transformers asks for everything that is imported outside of `try`.
    try:
        from sentence_transformers.util import load_file_path
    except ImportError as error:
        raise ImportError(
            "sentence-transformers opens encoders: pip install sentence-transformers"
        ) from error

    contents = {}
    with named_errors(path):
        for name in MODEL_FILES:
            file = load_file_path(path, name, **arguments)
            if file is not None:
                contents[name] = load_json(file)

    return contents


def _check_model_class(path: str, files: dict[str, Any]) -> None:
    """Checks that a model of sentence-transformers gives one dense vector for each text.

    sentence-transformers would open the transformer of any other model, and take the mean.

    Raises:
        ValueError: for a model of another kind.
    """
    model_class = "SentenceTransformer"
    if SETTINGS in files:
        model_class = files[SETTINGS].get("model_type", model_class)
    elif "sentence_transformers" in files.get("config.json", {}):  # of versions without settings
        model_class = "CrossEncoder"

    if model_class != "SentenceTransformer":
        reason = _OTHER_CLASSES.get(
            model_class, "its vectors are not those of a SentenceTransformer"
        )
        raise ValueError(
            f"{path!r} is a {model_class}: {reason}. Give a SentenceTransformer, which returns one"
            " dense vector for each text."
        )


def check_loading_arguments(loading: dict[str, Any]) -> None:
    """Checks the further arguments of `load_chunk_encoder`.

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
        with named_errors(path):
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
    with safe_weights(path):
        model = STATIC_MODELS[model_type].from_pretrained(path, dtype=torch.float32, **loading)

    encoder = new_chunk_encoder(model.config)
    encoder.model = model
    prompts = getattr(model.config, "prompts", {})
    return LoadedChunkEncoder(
        encoder=encoder.eval(),
        tokenizer=load_tokenizer(path, config=model.config, **loading),
        name=public_name,
        fingerprint=encoder.fingerprint(),
        prompts=Prompts(prompts, getattr(model.config, "default_prompt_name", None)),
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

    loaded = model.detach_chunk_encoder()
    if name is not None:
        loaded.name = name

    return loaded


def _from_sentence_transformer(
    sentence_transformer: Any, path: str, public_name: str, pooling: PoolingMode | None
) -> LoadedChunkEncoder:
    """Takes over an encoder of ``Transformer → Pooling → Dense … → Normalize``, or a static one."""
    steps = list(sentence_transformer)
    own_pooling, dense, normalize = _read_steps(path, steps)
    if type(steps[0]).__name__ == "StaticEmbedding":
        network = steps[0]
        config, tokenizer = _static_parts(network)
    else:
        network = steps[0].auto_model
        config = network.config
        tokenizer = steps[0].tokenizer

    further_steps: dict[str, Any] = {}
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

    default = sentence_transformer.default_prompt_name
    # sentence-transformers adds empty prompts.
    texts = {
        name: text for name, text in sentence_transformer.prompts.items() if text or name == default
    }
    if not texts:
        texts = _prompts_of_card(public_name)

    prompts = Prompts(texts, default)
    check_prompt(prompts.text())
    if not all(getattr(step, "include_prompt", True) for step in steps):
        further_steps["include_prompt"] = False
    if sentence_transformer.truncate_dim is not None:
        further_steps["truncate_dim"] = sentence_transformer.truncate_dim
    if further_steps:
        config.sentence_steps = further_steps

    encoder = new_chunk_encoder(config, pooling or own_pooling, normalize)
    encoder.model.load_state_dict(_weights_of(path, network, encoder.model))
    for layer, step in zip(encoder.dense, dense, strict=True):
        layer.load_state_dict(step.state_dict())

    return LoadedChunkEncoder(
        encoder=encoder,
        tokenizer=tokenizer,
        name=public_name,
        fingerprint=encoder.fingerprint(),
        prompts=prompts,
    )


def _prompts_of_card(name: str) -> dict[str, str]:
    """Returns the prompts of an encoder that its card names and its files do not."""
    for pattern, prompts in _PROMPTS_OF_CARDS.items():
        if re.fullmatch(pattern, name):
            return prompts
    return {}


def _weights_of(path: str, network: nn.Module, model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the weights of an encoder by the names that a model has for them.

    Raises:
        ValueError: the encoder lacks weights of the model.
    """
    if hasattr(network, "peft_config"):
        _merge_adapters(network)
    if isinstance(network, PreTrainedModel):
        network = encoder_half(network)

    weights = network.state_dict()
    missing = sorted(model.state_dict().keys() - weights.keys())
    if missing:
        raise ValueError(
            f"{path!r} has no {missing[0]!r}: sentence-transformers opens it as a"
            f" {type(network).__name__}, but a chunk encoder would be a {type(model).__name__}."
            " Give an encoder without a decoder and without adapters: merge adapters with"
            " merge_and_unload() and save the encoder again."
        )

    return {name: weights[name] for name in model.state_dict()}


def _merge_adapters(network: nn.Module) -> None:
    """Adds adapters, such as those of LoRA, to the weights of their layers, and removes them."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(network.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge(safe_merge=True)
            network.set_submodule(name, layer.get_base_layer())


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

    if names[0] == "Router":
        raise ValueError(
            f"{path!r} has a Router, which reads questions and documents with different modules,"
            " but one encoder reads all chunks. Save the modules for documents as an encoder of"
            " their own: SentenceTransformer(modules=[*model[0].sub_modules['document']]).save(…)."
        )

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

    with named_errors(path), safe_weights(path):
        return SentenceTransformer(
            path,
            device="cpu",
            model_kwargs={"dtype": torch.float32},
            trust_remote_code=False,
            **arguments,
        )


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


def as_loaded_encoder(
    chunk_encoder: str | PathLike | LoadedChunkEncoder, loading: dict[str, Any]
) -> LoadedChunkEncoder:
    """Loads a chunk encoder by its name or folder; returns an encoder that is already loaded.

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


def new_model_over(
    loaded: LoadedChunkEncoder,
    model_class: type[PreTrainedModel],
    chunk_size: int,
    fields: dict[str, Any],
) -> PreTrainedModel:
    """Makes a new model over the vectors of a chunk encoder, which the model holds by default.

    Args:
        loaded: the chunk encoder.
        model_class: the class of the new model.
        chunk_size: most tokens in a chunk.
        fields: further fields of the configuration, ``chunking`` among them.

    Returns:
        The model in evaluation mode.
    """
    rule = ChunkingRule.from_tokenizer(
        loaded.tokenizer,
        chunk_size=chunk_size,
        mode=fields["chunking"],
        max_chunk_size=loaded.max_chunk_size,
    )

    loaded.with_prompt(rule, loaded.prompts.passage)  # an error if it fills a chunk

    values = {
        "chunk_encoder_config": loaded.encoder.model.config.to_dict(),
        "chunk_encoder_name": loaded.name,
        "chunk_encoder_fingerprint": loaded.fingerprint,
        "chunk_encoder_pooling": loaded.encoder.pooling,
        "chunk_encoder_normalize": loaded.encoder.normalize,
        "prompts": dict(loaded.prompts.texts) or None,
        "default_prompt_name": loaded.prompts.default_name,
        "chunk_size": rule.chunk_size,
        "chunk_prefix_ids": rule.prefix_ids,
        "chunk_suffix_ids": rule.suffix_ids,
        "sentence_token_ids": rule.sentence_token_ids or None,
        "pad_token_id": loaded.tokenizer.pad_token_id,
    }
    config = model_class.config_class(**(values | fields))

    model = model_class(config)
    base_model = model.base_model
    if base_model.chunk_encoder is None:
        base_model.tokenizer = loaded.tokenizer
    else:
        base_model.attach_chunk_encoder(loaded)

    return model.eval()


def can_copy_layers(encoder: ChunkEncoder, num_hidden_layers: int | None) -> bool:
    """Returns whether a chunk encoder's own layers could read its vectors."""
    if not encoder.has_layers:
        return False
    config = encoder.model.config
    if num_hidden_layers == 0 and config.model_type in _NOT_WITHOUT_LAYERS:
        return False
    return encoder.hidden_size == config.hidden_size == embedding_size(config)


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

    if num_hidden_layers is not None:
        config = type(config).from_dict(with_layers(config, num_hidden_layers))

    layers = with_attention_dropout(config, attention_dropout)
    layers.pop("sentence_steps", None)  # they follow the chunk encoder's layers only
    return layers


def copy_layers(chunk_encoder: ChunkEncoder, encoder: nn.Module) -> None:
    """Copies the chunk encoder's layers; further positions keep the new encoder's values.

    Raises:
        ValueError: the chunk encoder has no such layer.
    """
    weights = chunk_encoder.model.state_dict()
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
        # The chunk encoder may be on an accelerator.
        state[name] = torch.cat([copied[:rows].to(values.device), values[rows:]])

    encoder.load_state_dict(state)
