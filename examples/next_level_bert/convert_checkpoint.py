"""Converts a checkpoint of NextLevelBERT's authors into a model of this package.

    python examples/next_level_bert/convert_checkpoint.py aiintelligentsystems/nextlevelbert-256 \\
        my-model

The authors' checkpoints hold `config.json` and the weights of the encoder over chunks, of the
special vectors, and of the sentence encoder or the head.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers.utils import cached_file

from nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertModel,
    load_chunk_encoder,
    model_path,
)
from nextlevelbert.command import run_command

Weights = dict[str, torch.Tensor]

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there is read
# How names begin in our models (below "model." if there is a head), and in theirs.
_NAMES = {
    "encoder.": "bert.",
    "special_embeddings.": "special_vec_embeddings.",
    "head.": "cls.cls.",
}
# The sentence encoder, by older and newer sentence-transformers.
_FROZEN = "encoder.0.auto_model."
_FROZEN_NEWER = "encoder.0.model."
# Fields that no tensor's shape shows.
_FIELDS_TO_COMPARE = ("model_type", "num_attention_heads", "hidden_act", "layer_norm_eps")


def convert_checkpoint(
    source: str | PathLike,
    chunk_encoder: Any = None,
    chunk_size: int | None = None,
    revision: str | None = None,
) -> NextLevelBertModel | NextLevelBertForMaskedVectorModeling:
    """Converts a checkpoint of NextLevelBERT's authors into a model of this package.

    Each tensor must be there with its shape. The model reads long documents in overlapping windows.
    The authors truncate them: ``config.long_documents = "truncate"``.

    Args:
        source: a name on the Hub or a folder.
        chunk_encoder: folder or name of the sentence encoder, or what `load_chunk_encoder` made of
            it (default: the one that `config.json` names).
        chunk_size: number of tokens in a chunk (default: the value in `config.json`). With 0, a
            chunk is one sentence, or several if the encoder reads less than the sentence.
        revision: the version on the Hub: a branch, a tag, a commit, or a pull request such as
            ``"refs/pr/1"``.

    Raises:
        FileNotFoundError: if there is no such checkpoint, or asking the Hub fails.
        ValueError: for a pickle of more than tensors, tensors that do not fit, another sentence
            encoder than theirs.
    """
    config, weights = _read(model_path(source), revision)
    if chunk_encoder is None or isinstance(chunk_encoder, str | PathLike):
        chunk_encoder = _open_chunk_encoder(config["_encoder_name"], chunk_encoder)
    backbone = chunk_encoder.encoder.model.config
    _check_fields(config["encoder_config"], chunk_encoder)

    if chunk_size is None:
        chunk_size = config["chunk_size"]
    chunking = "fixed"
    if chunk_size == 0:
        chunking = "sentences"
        chunk_size = chunk_encoder.tokenizer.model_max_length
        if chunk_encoder.max_chunk_size is not None:
            chunk_size = min(chunk_size, chunk_encoder.max_chunk_size)

    # As many positions as their sequences are long.
    positions = weights["bert.embeddings.position_embeddings.weight"]
    with_head = any(name.startswith(_NAMES["head."]) for name in weights)
    model_class: Any = NextLevelBertModel
    if with_head:
        model_class = NextLevelBertForMaskedVectorModeling
    model = model_class.from_chunk_encoder(
        chunk_encoder,
        chunk_size=chunk_size,
        chunking=chunking,
        encoder_config={**backbone.to_dict(), "max_position_embeddings": len(positions)},
    )
    _copy(weights, model, encoder_name=chunk_encoder.name, with_head=with_head)
    return model


def _open_chunk_encoder(name: str, source: str | PathLike | None) -> Any:
    """Opens the sentence encoder of a source, or the one that `config.json` names without it.

    A folder gets the name from `config.json`, unless that is a path of the authors' machine.
    """
    if source is None:
        return load_chunk_encoder(name)
    if Path(source).is_dir() and not Path(name).is_absolute():
        return load_chunk_encoder(source, name=name)
    return load_chunk_encoder(source)


def _check_fields(encoder_config: dict[str, Any], chunk_encoder: Any) -> None:
    """Raises a ValueError if the encoder over chunks differs from the chunk encoder."""
    backbone = chunk_encoder.encoder.model.config
    described = {**type(backbone)().to_dict(), "model_type": "bert", **encoder_config}
    differing = [
        field
        for field in _FIELDS_TO_COMPARE
        if described.get(field) != getattr(backbone, field, None)
    ]
    if differing:
        raise ValueError(
            f"config.json and the chunk encoder {chunk_encoder.name!r} differ in {differing}. Give"
            " the encoder that the checkpoint was made with: --chunk_encoder."
        )


def _read(source: str, revision: str | None) -> tuple[dict[str, Any], Weights]:
    """Reads `config.json` and the tensors, from a folder or the Hub."""
    find = partial(
        cached_file, source, revision=revision, _raise_exceptions_for_missing_entries=False
    )
    config_file = find("config.json")
    weights_file = find(_WEIGHTS[0])
    if weights_file is None:
        weights_file = find(_WEIGHTS[1])
    if config_file is None or weights_file is None:
        raise FileNotFoundError(
            f"{source!r} is no checkpoint of the authors: it needs config.json and"
            f" {' or '.join(_WEIGHTS)}. Give the folder or the name on the Hub of one."
        )

    config = json.loads(Path(config_file).read_text(encoding="utf-8"))
    lacking = {"_encoder_name", "encoder_config", "chunk_size"} - config.keys()
    if lacking:
        raise ValueError(
            f"{source!r} is not a checkpoint of the authors: its config.json lacks"
            f" {sorted(lacking)}."
        )
    if weights_file.endswith(_WEIGHTS[0]):
        return config, load_file(weights_file)
    try:
        # PyTorch's unpickler for weights calls nothing but what rebuilds tensors.
        return config, dict(torch.load(weights_file, map_location="cpu", weights_only=True))
    except Exception:  # whatever it is: PyTorch's message advises to open it all the same
        raise ValueError(
            f"{weights_file} cannot be loaded safely (corrupt, or a pickle with code). Ask the"
            " authors for a .safetensors file."
        ) from None


@torch.no_grad()
def _copy(weights: Weights, model: nn.Module, encoder_name: str, with_head: bool) -> None:
    """Copies the weights into the model; the sentence encoder's are there already, and compared."""
    frozen = _FROZEN
    if any(name.startswith(_FROZEN_NEWER) for name in weights):
        frozen = _FROZEN_NEWER
    targets = _targets(model, frozen)
    if with_head:  # such checkpoints need not hold the sentence encoder
        for name in targets.keys() - weights.keys():
            if name.startswith(frozen):
                weights[name] = targets[name]
    # Nothing reads these: positions are counted, and the pooler is no part of a sentence encoder.
    for name in weights.keys() - targets.keys():
        if name.startswith(f"{frozen}pooler.") or name.endswith("position_ids"):
            del weights[name]

    stored = _shapes(weights)
    expected = _shapes(targets)
    if stored != expected:
        raise ValueError(
            "The tensors of the checkpoint do not fit the model. Only the checkpoint has"
            f" {sorted(stored - expected)[:5]}, and only the model has"
            f" {sorted(expected - stored)[:5]}. Check --chunk_encoder."
        )
    for name, target in targets.items():
        if name.startswith(frozen) and not torch.equal(weights[name], target):
            raise ValueError(
                f"The tensor {name} of the checkpoint differs from that of {encoder_name!r}. Give"
                " the encoder that the checkpoint was made with: --chunk_encoder."
            )
        target.copy_(weights[name])


def _shapes(tensors: Weights) -> set[str]:
    return {f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()}


def _targets(model: nn.Module, frozen: str) -> Weights:
    """Returns the tensors of our model by their names in the authors' checkpoint."""
    names = {**_NAMES, "chunk_encoder.": frozen.removesuffix("model.")}
    targets = {}
    for name, tensor in model.state_dict().items():
        module, dot, rest = name.removeprefix("model.").partition(".")
        targets[names[module + dot] + rest] = tensor
    return targets


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="Folder or Hub name of the authors' checkpoint.")
    parser.add_argument("output", help="Folder to write, new or empty.")
    parser.add_argument(
        "--chunk_encoder",
        help="Folder or name of the sentence encoder (default: the one that config.json names).",
    )
    parser.add_argument(
        "--chunk_size",
        type=int,
        help="Tokens per chunk (default: the value in config.json); 0: each sentence is a chunk.",
    )
    parser.add_argument(
        "--revision", help="Branch, tag, commit, or a pull request such as refs/pr/1, on the Hub."
    )
    return parser


def main(argv: list[str]) -> None:
    """Converts a checkpoint, and writes the model into a folder."""
    parser = make_parser()
    args = parser.parse_args(argv)
    output = Path(args.output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        parser.error(f"{args.output!r} exists already. Give a new or an empty folder.")

    model = convert_checkpoint(
        args.source,
        chunk_encoder=args.chunk_encoder,
        chunk_size=args.chunk_size,
        revision=args.revision,
    )
    model.save_pretrained(output)
    print(f"Wrote {output}: {type(model).__name__}, windows of {model.config.max_chunks} chunks.")


if __name__ == "__main__":
    raise SystemExit(run_command(main))
