"""Checkpoints as the authors of NextLevelBERT published them, turned into ours.

python -m nextlevelbert.convert aiintelligentsystems/nextlevelbert-256 my-model

Their format: a `config.json` with `_encoder_name` (the sentence encoder), `encoder_config` (its architecture,
only what differs from the defaults of `transformers`) and `chunk_size` (0: one chunk a sentence); and a
`model.safetensors` with the encoder over chunks, the special vectors and a copy of the sentence encoder. A
pretraining checkpoint has the prediction head in place of that copy.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedConfig

from .models.chunk_encoder import LoadedChunkEncoder, load_chunk_encoder
from .models.modeling_nextlevelbert import NextLevelBertForMaskedVectorModeling, NextLevelBertModel

logger = logging.getLogger(__name__)

# How names begin in our models (below "model." where there is a head), and in theirs.
_NAMES = {
    "encoder.": "bert.",
    "special_embeddings.": "special_vec_embeddings.",
    "chunk_encoder.model.": "encoder.0.auto_model.",
    "head.": "cls.cls.",
}
_NEWER_CHUNK_ENCODER = "encoder.0.model."  # the same module in newer versions of sentence-transformers

# What the second level and the sentence encoder must have in common, beside shapes.
_ARCHITECTURE = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "layer_norm_eps",
    "type_vocab_size",
    "max_position_embeddings",
    "vocab_size",
)

_NO_PICKLES = (
    "Pickles (pytorch_model.bin, .ckpt) can run any code when they are opened, so they are not read here. Turn one "
    "that you trust into model.safetensors (https://huggingface.co/docs/safetensors/convert-weights), names as in its "
    "state dict, and put a config.json with _encoder_name, encoder_config and chunk_size beside it."
)


def convert_checkpoint(
    source: str | os.PathLike[str],
    chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder | None = None,
    chunk_size: int | None = None,
) -> NextLevelBertModel | NextLevelBertForMaskedVectorModeling:
    """Loads a checkpoint of the original authors into our model, every tensor accounted for.

    Documents longer than the window are read in overlapping windows, as in any model of ours; the authors cut
    them in silence. ``model.config.long_documents = "truncate"`` gives their numbers for those, too. Dropout is
    that of the sentence encoder, as in their training.

    Args:
        source: a folder with `config.json` and `model.safetensors`, or a name on the Hub such as
            ``"aiintelligentsystems/nextlevelbert-256"``.
        chunk_encoder: the sentence encoder that the checkpoint was made with: name, folder, or one already
            loaded. By default the one that `config.json` names.
        chunk_size: in place of the one in `config.json`; 0 makes one chunk a sentence. (A sentence longer than
            the encoder reads goes on in further chunks; the authors cut it.)

    Returns:
        In evaluation mode, a `NextLevelBertModel`, or, where the checkpoint has a prediction head, a
        `NextLevelBertForMaskedVectorModeling`.

    Raises:
        FileNotFoundError: if a file of the checkpoint is missing, or there are only pickles.
        ValueError: for another format; unknown or missing tensors or shapes that do not fit (all named); a
            sentence encoder of another architecture or other weights than the checkpoint holds; a chunk size
            that the encoder does not allow.
    """
    config, weights = _read(_find(source))
    if chunk_size is not None:
        config["chunk_size"] = chunk_size
    _check_keys(config, {"encoder_config", "chunk_size"} | ({"_encoder_name"} if chunk_encoder is None else set()))
    encoder = _load_encoder(config, chunk_encoder)
    backbone = encoder.encoder.model.config
    _check_architecture(config["encoder_config"], backbone, encoder.name)
    size = config["chunk_size"]
    if type(size) is not int:
        raise ValueError(f"chunk_size must be a whole number of tokens (0: one chunk a sentence), got {size!r}.")
    sentences = size == 0
    if sentences:
        size = min(encoder.tokenizer.model_max_length, encoder.max_chunk_size or encoder.tokenizer.model_max_length)
    positions = weights.get("bert.embeddings.position_embeddings.weight")
    pretraining = any(name.startswith(_NAMES["head."]) for name in weights)
    model: Any = (NextLevelBertForMaskedVectorModeling if pretraining else NextLevelBertModel).from_chunk_encoder(
        encoder,
        chunk_size=size,
        chunking="sentences" if sentences else "fixed",
        encoder_config={
            **backbone.to_dict(),
            # Their pretraining makes a table as long as its sequences, whatever the sentence encoder has.
            "max_position_embeddings": backbone.max_position_embeddings if positions is None else len(positions),
        },
    )
    _load(model, weights, encoder.name, pretraining)
    logger.info(
        "Documents of more than %d chunks are read in overlapping windows. For the authors' numbers on those, who cut "
        'them there, set long_documents to "truncate" in config.json or model.config.',
        model.config.max_chunks,
    )
    return model


def _find(source: str | os.PathLike[str]) -> Path:
    """The folder of a checkpoint; from the Hub only what is read."""
    folder = Path(source)
    if folder.is_file():
        raise FileNotFoundError(
            f"{os.fspath(source)!r} is a file; give the folder with config.json and model.safetensors. {_NO_PICKLES}"
        )
    if folder.is_dir():
        return folder
    try:
        return Path(snapshot_download(os.fspath(source), allow_patterns=["config.json", "*.safetensors"]))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"Found no checkpoint {os.fspath(source)!r}: no such folder, and not on the Hub or in its cache. Give a "
            "folder, or a name such as 'aiintelligentsystems/nextlevelbert-256'."
        ) from error


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Configuration and weights as they are in the files."""
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            held = _some(path.name for path in folder.iterdir()) if any(folder.iterdir()) else "nothing"
            raise FileNotFoundError(f"{str(folder)!r} has no {name}; it holds {held}. {_NO_PICKLES}")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = load_file(folder / "model.safetensors")
    except (json.JSONDecodeError, SafetensorError) as error:
        raise ValueError(
            f"A file in {str(folder)!r} is damaged, or only a pointer to the real one ({error}); fetch it again."
        ) from error
    return config, weights


def _check_keys(config: dict[str, Any], needed: set[str]) -> None:
    """Raises where `config.json` lacks what was not given otherwise."""
    if config.get("model_type") == "nextlevelbert":
        raise ValueError("This is a checkpoint of this package already: AutoModel.from_pretrained opens it.")
    if absent := needed - config.keys():
        raise ValueError(
            f"config.json lacks {_some(absent)}, which the authors' checkpoints have; it has {_some(config)}. "
            "_encoder_name and chunk_size can be given as chunk_encoder and chunk_size instead."
        )


def _load_encoder(
    config: dict[str, Any], chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder | None
) -> LoadedChunkEncoder:
    """The sentence encoder that was given, or the one that the checkpoint names."""
    if isinstance(chunk_encoder, LoadedChunkEncoder):
        return chunk_encoder
    if chunk_encoder is None:
        return load_chunk_encoder(config["_encoder_name"])
    named = config.get("_encoder_name")
    # A folder stands for the encoder that is named, and others find it by that name; a path is not for others.
    stands_in = Path(chunk_encoder).is_dir() and named is not None and not Path(named).is_absolute()
    return load_chunk_encoder(chunk_encoder, named if stands_in else None)


def _check_architecture(described: dict[str, Any], backbone: PreTrainedConfig, name: str) -> None:
    """Raises where the second level, described by what differs from the defaults, is built unlike the encoder."""
    whole = {**type(backbone)().to_dict(), "model_type": "bert", **described}
    different = [
        f"{key} {whole.get(key)!r} (encoder: {getattr(backbone, key, None)!r})"
        for key in _ARCHITECTURE
        if whole.get(key) != getattr(backbone, key, None)
    ]
    if different:
        raise ValueError(
            f"encoder_config in config.json does not describe the chunk encoder {name!r}: {_some(different)}. Give "
            "the encoder that the checkpoint was made with as chunk_encoder."
        )


@torch.no_grad()
def _load(model: Any, weights: dict[str, torch.Tensor], encoder_name: str, pretraining: bool) -> None:
    """Copies the weights into the model; the sentence encoder's are there already, and compared."""
    names = dict(_NAMES)
    if any(name.startswith(_NEWER_CHUNK_ENCODER) for name in weights):
        names["chunk_encoder.model."] = _NEWER_CHUNK_ENCODER
    level, frozen = names["encoder."], names["chunk_encoder.model."]
    wanted = {_renamed(ours.removeprefix("model."), names): tensor for ours, tensor in model.state_dict().items()}
    # Nothing reads these: positions are counted, and the pooler is no part of a sentence encoder.
    dropped = {level + "embeddings.position_ids", frozen + "embeddings.position_ids"}
    dropped |= {name for name in weights if name.startswith(frozen + "pooler.")}
    if unknown := weights.keys() - wanted.keys() - dropped:
        raise ValueError(f"The checkpoint has {len(unknown)} tensor(s) that have no place here: {_some(unknown)}.")
    required = {name for name in wanted if not (pretraining and name.startswith(frozen))}
    if missing := required - weights.keys():
        raise ValueError(f"The checkpoint lacks {len(missing)} tensor(s): {_some(missing)}.")
    found = {name: wanted[name] for name in weights if name in wanted}
    if unfit := [
        f"{name} {tuple(weights[name].shape)} (here: {tuple(ours.shape)})"
        for name, ours in found.items()
        if weights[name].shape != ours.shape
    ]:
        raise ValueError(f"{len(unfit)} tensor(s) of the checkpoint do not fit: {_some(unfit)}.")
    for name, ours in sorted(found.items()):
        theirs = weights[name].to(ours.dtype)
        if not name.startswith(frozen):
            ours.copy_(theirs)
        elif not torch.equal(theirs, ours):
            raise ValueError(
                f"{name} is not that of the chunk encoder {encoder_name!r} (they differ by up to "
                f"{(theirs - ours).abs().max():.2g}), so the checkpoint was made with another one. Give that as "
                "chunk_encoder."
            )
    if not any(name.startswith(frozen) for name in weights):
        logger.warning(
            "The checkpoint holds no sentence encoder, so nothing shows that its vectors came from %r.", encoder_name
        )


def _renamed(ours: str, names: dict[str, str]) -> str:
    """Their name of one of our tensors."""
    [prefix] = [prefix for prefix in names if ours.startswith(prefix)]
    return names[prefix] + ours.removeprefix(prefix)


def _some(names: Iterable[str]) -> str:
    """The first five in order, and how many more there are."""
    ordered = sorted(names)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m nextlevelbert.convert",
        description="Turns a checkpoint of NextLevelBERT's authors into one for AutoModel and SentenceTransformer.",
    )
    parser.add_argument("source", help="the checkpoint: a folder, or a name on the Hub")
    parser.add_argument("output", help="where to save the model")
    parser.add_argument("--chunk_encoder", help="name or folder of the sentence encoder, in place of config.json's")
    parser.add_argument("--chunk_size", type=int, help="in place of config.json's; 0 makes one chunk a sentence")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logger.setLevel(logging.INFO)
    if Path(args.source).is_dir() and Path(args.source).resolve() == Path(args.output).resolve():
        parser.error(f"output is the source itself ({args.output}), whose files would be overwritten; give another.")
    model = convert_checkpoint(args.source, args.chunk_encoder, args.chunk_size)
    model.save_pretrained(args.output)
    logger.info("Saved %s in %s.", type(model).__name__, args.output)


if __name__ == "__main__":
    main()
