"""Checkpoints as the authors of NextLevelBERT published them, turned into ours.

nextlevelbert convert aiintelligentsystems/nextlevelbert-256 my-model

Theirs hold `config.json` and weights of the encoder over chunks, the special vectors and the
sentence encoder or head.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file

from .models.chunk_encoder import LoadedChunkEncoder
from .models.from_encoder import load_chunk_encoder
from .models.modeling_nextlevelbert import NextLevelBertForMaskedVectorModeling, NextLevelBertModel

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there is read
# How names begin in our models (below "model." where there is a head), and in theirs.
_NAMES = {
    "encoder.": "bert.",
    "special_embeddings.": "special_vec_embeddings.",
    "head.": "cls.cls.",
}
_FROZEN = ("encoder.0.auto_model.", "encoder.0.model.")  # by older and newer sentence-transformers


def convert_checkpoint(
    source: str | os.PathLike[str],
    chunk_encoder: str | os.PathLike[str] | LoadedChunkEncoder | None = None,
    chunk_size: int | None = None,
    revision: str | None = None,
) -> NextLevelBertModel | NextLevelBertForMaskedVectorModeling:
    """Loads a checkpoint of the original authors into our model, every tensor accounted for.

    Long documents are read in overlapping windows; the authors cut them: ``config.long_documents =
    "truncate"``.

    Args:
        source: a name on the Hub or a folder.
        chunk_encoder: by default, the sentence encoder that `config.json` names.
        chunk_size: in place of that in `config.json`; 0 makes a sentence a chunk (several, if the
            encoder reads less).
        revision: the version on the Hub: a branch, a tag, a commit, or a pull request such as
            ``"refs/pr/1"``.

    Raises:
        ValueError: for a pickle of more than tensors, tensors that do not fit, another sentence
            encoder than theirs.
    """
    config, weights = _read(os.fspath(source), revision)
    if not isinstance(chunk_encoder, LoadedChunkEncoder):
        named = config["_encoder_name"]
        # A folder stands for the encoder that is named; a path of their machine is no name.
        stands_in = (
            chunk_encoder is not None
            and Path(chunk_encoder).is_dir()
            and not Path(named).is_absolute()
        )
        chunk_encoder = load_chunk_encoder(chunk_encoder or named, named if stands_in else None)
    backbone = chunk_encoder.encoder.model.config
    described = {**type(backbone)().to_dict(), "model_type": "bert", **config["encoder_config"]}
    in_no_shape = ("model_type", "num_attention_heads", "hidden_act", "layer_norm_eps")
    if differ := [key for key in in_no_shape if described.get(key) != getattr(backbone, key, None)]:
        raise ValueError(
            f"config.json and the chunk encoder {chunk_encoder.name!r} differ in {differ}."
        )
    size = config["chunk_size"] if chunk_size is None else chunk_size
    longest = chunk_encoder.tokenizer.model_max_length
    positions = weights[
        "bert.embeddings.position_embeddings.weight"
    ]  # as many as their sequences are long
    with_head = any(name.startswith(_NAMES["head."]) for name in weights)
    kind: Any = NextLevelBertForMaskedVectorModeling if with_head else NextLevelBertModel
    model = kind.from_chunk_encoder(
        chunk_encoder,
        chunk_size=size or min(longest, chunk_encoder.max_chunk_size or longest),
        chunking="fixed" if size else "sentences",
        encoder_config={**backbone.to_dict(), "max_position_embeddings": len(positions)},
    )
    _copy(weights, model, chunk_encoder.name, with_head)
    return model


def _read(source: str, revision: str | None) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """`config.json` and the tensors. PyTorch's unpickler for weights calls nothing but what
    rebuilds tensors.
    """
    folder = Path(source)
    for name in _WEIGHTS if not folder.exists() else ():  # of the two, one is downloaded
        try:
            folder = Path(
                snapshot_download(source, revision=revision, allow_patterns=["config.json", name])
            )
        except (OSError, ValueError) as error:
            raise FileNotFoundError(
                f"There is no checkpoint {source!r}, revision {revision or 'main'}."
            ) from error
        if (folder / name).is_file():
            break
    file = next(
        (folder / name for name in _WEIGHTS if (folder / name).is_file()), folder / _WEIGHTS[0]
    )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if lacking := {"_encoder_name", "encoder_config", "chunk_size"} - config.keys():
        raise ValueError(
            f"{source!r} is no checkpoint of the authors': its config.json lacks {sorted(lacking)}."
        )
    if file.suffix == ".safetensors":
        return config, load_file(file)
    try:
        return config, dict(torch.load(file, map_location="cpu", weights_only=True))
    except Exception:  # whatever it is: PyTorch's message advises to open it all the same
        raise ValueError(
            f"{file} is damaged or holds code; have its tensors saved as safetensors."
        ) from None


@torch.no_grad()
def _copy(weights: dict[str, torch.Tensor], model: Any, encoder_name: str, with_head: bool) -> None:
    """Copies the weights into the model; the sentence encoder's are there already, and compared."""
    frozen = _FROZEN[any(name.startswith(_FROZEN[1]) for name in weights)]
    names = {**_NAMES, "chunk_encoder.": frozen[: -len("model.")]}
    targets = {}
    for name, tensor in model.state_dict().items():
        prefix, dot, rest = name.removeprefix("model.").partition(".")
        targets[names[prefix + dot] + rest] = tensor
    # Nothing reads these: positions are counted, and the pooler is no part of a sentence encoder.
    unread = {
        name
        for name in weights
        if name.startswith(frozen + "pooler.") or name.endswith("position_ids")
    }
    both = sorted(weights.keys() & targets.keys())
    shapes = {
        f"{name} {tuple(weights[name].shape)}"
        for name in both
        if weights[name].shape != targets[name].shape
    }
    lacking = {
        name
        for name in targets.keys() - weights.keys()
        if not (with_head and name.startswith(frozen))
    }
    unknown = weights.keys() - targets.keys() - unread
    for problem, culprits in {
        "has unknown": unknown,
        "lacks": lacking,
        "has misshapen": shapes,
    }.items():
        if culprits:
            raise ValueError(
                f"The checkpoint {problem} tensors ({len(culprits)}), such as"
                f" {sorted(culprits)[:5]}."
            )
    for name in both:
        if name.startswith(frozen) and not torch.equal(weights[name], targets[name]):
            raise ValueError(
                f"{name} is not that of {encoder_name!r}: give the encoder of the checkpoint."
            )
        targets[name].copy_(weights[name])


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "nextlevelbert convert", description=(convert_checkpoint.__doc__ or "").split("\n")[0]
    )
    parser.add_argument("source", help="the checkpoint: a name on the Hub, or a folder")
    parser.add_argument("output", type=Path, help="folder to save the model in, new or empty")
    parser.add_argument(
        "--chunk_encoder", help="name or folder of the sentence encoder, in place of config.json's"
    )
    parser.add_argument(
        "--chunk_size", type=int, help="in place of config.json's; 0 makes each sentence a chunk"
    )
    parser.add_argument(
        "--revision", help="version on the Hub: branch, tag, commit or pull request (refs/pr/1)"
    )
    args = parser.parse_args(words)
    if args.output.is_dir() and any(args.output.iterdir()):
        parser.error(f"output: the folder {args.output} holds files; give a new or an empty one.")
    model = convert_checkpoint(args.source, args.chunk_encoder, args.chunk_size, args.revision)
    model.save_pretrained(args.output)
    print(
        f"Wrote {args.output}: {type(model).__name__}, windows of {model.config.max_chunks} chunks."
    )
