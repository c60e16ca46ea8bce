"""Exports a sentence encoder to ONNX, and compares the graph with torch."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim

from ...models.chunk_encoder import ChunkEncoder
from ...models.files import whole_folder
from ...models.modeling_nextlevelbert import NextLevelBertModel
from .onnx import DESCRIPTION, MINILM, Export, quantize, without_warnings
from .torch import TorchEncoder, open_model

_DIFFERENCE = 1e-4  # at most, between a value of a vector by the graph and by torch
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_LENGTHS = (9, 5, 7)  # tokens of the chunks with which the graph is recorded


def make_export(model: NextLevelBertModel, made: Export) -> bool:
    """Exports the encoder of a model unless there is its export, or says why that fails.

    Args:
        model: the model.
        made: its export, as the files were before they were opened.

    Returns:
        Whether the export stands for the model.
    """
    if not _can_be_exported(model) or model.device.type != "cpu":
        return False
    if made.is_made:
        return True
    name = model.config.chunk_encoder_name
    if not all(map(find_spec, _PACKAGES)):
        print(
            f"note: {name} runs in torch. Without its import, the next command is seconds faster:"
            " pip install 'nextlevelbert[onnx]'",
            file=sys.stderr,
        )
        return False
    if not made.is_settled:
        return False
    try:
        export(model, made.folder)
    except Exception as error:  # the errors of onnxruntime have no class of their own
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"note: {name} runs in torch, because it has no export: {reason}", file=sys.stderr)
        return False
    return True


def _can_be_exported(model: NextLevelBertModel) -> bool:
    """Returns whether a model is a sentence encoder with nothing over its chunk vectors."""
    config = model.config
    return (
        config.model_type == "nextlevelbert"
        and config.pooling == "plain"
        and config.chunking == "fixed"
        and not config.whiten_chunks
        and model.get_chunk_encoder().has_layers
    )


def export(model: NextLevelBertModel, folder: Path) -> None:
    """Writes the export of a model; see `OnnxEncoder`.

    Args:
        model: a model that can be exported, in float32 on the CPU.
        folder: folder to write, whole or not at all.

    Raises:
        ValueError: if the encoder has a step that the graph has not, or its vectors are others.
    """
    encoder = model.get_chunk_encoder()
    tokenizer = model.tokenizer
    prompts = model.config.encoder_prompts()
    rules = {
        "passage_rule": model.prompted_rule(prompts.passage),
        "query_rule": model.prompted_rule(prompts.query),
    }
    if any(rule.unpooled for rule in rules.values()):
        raise ValueError("its pooling leaves out the prompt")
    words = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    encoder.check_ids(np.array(words))
    described = TorchEncoder(model)
    description = {name: asdict(rule) for name, rule in rules.items()} | {
        "fingerprint": described.fingerprint(),
        "recipe": described.encoder_recipe,
        "tokenizer": {
            "unk_token_id": tokenizer.unk_token_id,
            "split_special_tokens": tokenizer.split_special_tokens,
        },
    }
    with whole_folder(folder) as temporary, without_warnings():
        graph = temporary / "float32.onnx"
        _write_graph(encoder, graph, _batch(words, _LENGTHS))
        size = model.config.chunk_size
        _compare(encoder, graph, _batch(words, (size // 2, size, 3)))
        tokenizer.backend_tokenizer.save(str(temporary / "tokenizer.json"))
        (temporary / DESCRIPTION).write_text(json.dumps(description), encoding="utf-8")


def _batch(words: list[int], lengths: tuple[int, ...]) -> dict[str, Tensor]:
    """Makes chunks of some lengths, padded together, of tokens drawn at random."""
    generator = torch.Generator().manual_seed(0)
    choice = torch.randint(len(words), (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"input_ids": torch.tensor(words)[choice], "attention_mask": mask.long()}


def _write_graph(encoder: ChunkEncoder, path: Path, batch: dict[str, Tensor]) -> None:
    """Records the pass of an encoder for batches of any size and length."""
    attention = encoder.model.config._attn_implementation
    # Its graph is a tenth faster, because torch's fused attention looks for rows without a token.
    encoder.model.set_attn_implementation("eager")
    try:
        program: Any = torch.onnx.export(
            encoder,
            kwargs=batch,
            dynamic_shapes={name: {0: Dim.AUTO, 1: Dim.AUTO} for name in batch},
            dynamo=True,
            verbose=False,
        )
    finally:
        encoder.model.set_attn_implementation(attention)
    for node in program.model.graph:  # the paths of this machine
        node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)
    program.save(path)


@torch.no_grad()
def _compare(encoder: ChunkEncoder, path: Path, batch: dict[str, Tensor]) -> None:
    """Compares the vectors of chunks by a graph with those by torch.

    Raises:
        ValueError: if they differ.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {name: values.numpy() for name, values in batch.items()}
    [vectors] = session.run(None, inputs)
    difference = np.abs(vectors - encoder(**batch).numpy()).max()
    if not difference < _DIFFERENCE:
        raise ValueError(f"the vectors of its graph differ from torch's by {difference:.1g}")


def write_installed() -> None:
    """Writes the export of all-MiniLM-L6-v2 that is installed with the package, see `MINILM`."""
    with TemporaryDirectory() as folder, whole_folder(MINILM) as temporary:
        export(open_model("minilm", device="cpu"), Path(folder))
        quantize(Path(folder, "float32.onnx"), temporary / "int8.onnx")
        for name in ("tokenizer.json", DESCRIPTION):
            shutil.copy(Path(folder, name), temporary)


if __name__ == "__main__":
    write_installed()
