"""Checkpoints as the authors of NextLevelBERT published them, turned into ours.

nextlevelbert convert aiintelligentsystems/nextlevelbert-256 my-model

Their format: a `config.json` with `_encoder_name` (the sentence encoder), `encoder_config` (its architecture,
only what differs from the defaults of `transformers`) and `chunk_size` (0: one chunk per sentence); and the weights
of the encoder over chunks, the special vectors and a copy of the sentence encoder, in `pytorch_model.bin` or
`model.safetensors`. A `.ckpt` of their pretraining has the prediction head in place of that copy.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.utils.logging import disable_progress_bar

from .checkpoint_files import read_checkpoint, some
from .encoders import LoadedChunkEncoder, load_chunk_encoder
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


def convert_checkpoint(
    source: str | os.PathLike[str],
    chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder | None = None,
    chunk_size: int | None = None,
    revision: str | None = None,
) -> NextLevelBertModel | NextLevelBertForMaskedVectorModeling:
    """Loads a checkpoint of the original authors into our model, every tensor accounted for.

    Documents longer than the window are read in overlapping windows, as in any model of ours; the authors cut
    them in silence. ``model.config.long_documents = "truncate"`` gives their numbers for those, too. Dropout is
    that of the sentence encoder, as in their training.

    Args:
        source: a name on the Hub such as ``"aiintelligentsystems/nextlevelbert-256"``; a folder with `config.json`
            and `model.safetensors` or `pytorch_model.bin` (the first, where there are both); or one file of weights,
            such as a `.ckpt` of their pretraining. That may lie beside a `config.json`; otherwise `chunk_encoder`
            and `chunk_size` must be given, and the second level is built like the sentence encoder, as in their code.
        chunk_encoder: the sentence encoder that the checkpoint was made with: name, folder, or one already
            loaded. By default the one that `config.json` names.
        chunk_size: in place of the one in `config.json`; 0 makes one chunk per sentence. (A sentence longer
            than the encoder reads goes on in further chunks; the authors cut it.)
        revision: the version on the Hub, where `source` is a name there: a branch, a tag, a commit, or a pull request
            such as ``"refs/pr/1"``. By default the main branch.

    Returns:
        In evaluation mode, a `NextLevelBertModel`, or, where the checkpoint has a prediction head, a
        `NextLevelBertForMaskedVectorModeling`.

    Raises:
        FileNotFoundError: if a file of the checkpoint is missing.
        ValueError: for another format; a pickle that holds more than tensors; unknown or missing tensors or shapes
            that do not fit (all named); a sentence encoder of another architecture or other weights than the
            checkpoint holds; a chunk size that the encoder does not allow.
    """
    config, weights = read_checkpoint(source, revision)
    if config is None and (chunk_encoder is None or chunk_size is None):
        raise FileNotFoundError(
            f"There is no config.json next to {os.fspath(source)!r}, so give chunk_encoder and chunk_size: those that "
            "the checkpoint was trained with."
        )
    needed = set() if config is None else {"encoder_config", "chunk_size"}
    config = config or {}
    if chunk_size is not None:
        config["chunk_size"] = chunk_size
    _check_keys(config, needed | ({"_encoder_name"} if chunk_encoder is None else set()))
    encoder = _load_encoder(config, chunk_encoder)
    backbone = encoder.encoder.model.config
    _check_architecture(config.get("encoder_config", backbone.to_dict()), backbone, encoder.name)
    size = config["chunk_size"]
    if type(size) is not int:
        raise ValueError(f"chunk_size must be a whole number of tokens (0: one chunk per sentence), got {size!r}.")
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


def _check_keys(config: dict[str, Any], needed: set[str]) -> None:
    """Raises where `config.json` lacks what was not given otherwise."""
    if config.get("model_type") == "nextlevelbert":
        raise ValueError("This checkpoint already has this package's format: open it with AutoModel.from_pretrained.")
    if absent := needed - config.keys():
        raise ValueError(
            f"config.json lacks {some(absent)}, which the authors' checkpoints have; it has {some(config)}. "
            "_encoder_name and chunk_size can be given as chunk_encoder and chunk_size instead."
        )


def _load_encoder(
    config: dict[str, Any], chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder | None
) -> LoadedChunkEncoder:
    """The sentence encoder that was given, or the one that the checkpoint names."""
    if isinstance(chunk_encoder, LoadedChunkEncoder):
        return chunk_encoder
    if chunk_encoder is None:
        try:
            return load_chunk_encoder(config["_encoder_name"])
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{error} config.json names this encoder; if you have it in a folder, give that (chunk_encoder, or on "
                "the command line --chunk_encoder FOLDER)."
            ) from error
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
            f"encoder_config in config.json does not describe the chunk encoder {name!r}: {some(different)}. Give "
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
        raise ValueError(f"The checkpoint has {len(unknown)} tensor(s) that are unknown here: {some(unknown)}.")
    required = {name for name in wanted if not (pretraining and name.startswith(frozen))}
    if missing := required - weights.keys():
        raise ValueError(f"The checkpoint lacks {len(missing)} tensor(s): {some(missing)}.")
    found = {name: wanted[name] for name in weights if name in wanted}
    if unfit := [
        f"{name} {tuple(weights[name].shape)} (here: {tuple(ours.shape)})"
        for name, ours in found.items()
        if weights[name].shape != ours.shape
    ]:
        raise ValueError(f"{len(unfit)} tensor(s) of the checkpoint do not fit: {some(unfit)}.")
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
            "The checkpoint contains no sentence encoder, so nothing confirms that its vectors came from %r.",
            encoder_name,
        )


def _renamed(ours: str, names: dict[str, str]) -> str:
    """Their name of one of our tensors."""
    [prefix] = [prefix for prefix in names if ours.startswith(prefix)]
    return names[prefix] + ours.removeprefix(prefix)


def main(prog: str | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Turns a checkpoint of NextLevelBERT's authors into one for AutoModel and SentenceTransformer.",
    )
    parser.add_argument("source", help="the checkpoint: a name on the Hub, a folder, or a file such as last.ckpt")
    parser.add_argument("output", help="where to save the model")
    parser.add_argument("--chunk_encoder", help="name or folder of the sentence encoder, in place of config.json's")
    parser.add_argument("--chunk_size", type=int, help="in place of config.json's; 0 makes one chunk per sentence")
    parser.add_argument("--revision", help="version on the Hub: branch, tag, commit or pull request (refs/pr/1)")
    args = parser.parse_args()
    disable_progress_bar()
    logging.basicConfig(format="%(message)s")
    logger.setLevel(logging.INFO)
    source = Path(args.source).resolve()
    if source.exists() and Path(args.output).resolve() in (source, source.parent if source.is_file() else source):
        parser.error(
            f"output is the source itself ({args.output}), whose files would be overwritten; give another folder."
        )
    try:
        model = convert_checkpoint(args.source, args.chunk_encoder, args.chunk_size, args.revision)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error
    model.save_pretrained(args.output)
    logger.info("Saved %s in %s.", type(model).__name__, args.output)


if __name__ == "__main__":
    main("python -m nextlevelbert.convert")
