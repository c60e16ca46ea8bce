"""Graphs: `torch.export`, ONNX and `torch.compile` give the numbers of the pass in Python, for
other sizes, too."""

import onnxruntime
import pytest
import torch
from torch.export import Dim
from transformers import BertConfig

from nextlevelbert import HateConfig, HateModel, NextLevelBertModel
from nextlevelbert.models.configuration_nextlevelbert import StaticEmbeddingConfig
from nextlevelbert.whitening import fit_whitening

from ..toys.vectors import close, packed_batch, toy_config

SIZE = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
LAYERS = BertConfig(**SIZE, num_hidden_layers=1, max_position_embeddings=10).to_dict()
NO_LAYERS = BertConfig(**SIZE, num_hidden_layers=0, max_position_embeddings=10).to_dict()
STATIC = StaticEmbeddingConfig(vocab_size=30_522, hidden_size=32).to_dict()
NO_SPECIALS = {"chunk_prefix_ids": (), "chunk_suffix_ids": ()}
DOUBLE = {"encoder_config": LAYERS, "chunk_encoder_config": LAYERS}
TABLE = {"encoder_config": NO_LAYERS, "chunk_encoder_config": STATIC, **NO_SPECIALS}
MEANS = {"pooling": "residual", "residual_start": 1.0, "whiten_chunks": True}
MODELS = {
    "layers": lambda: NextLevelBertModel(toy_config(**DOUBLE)),
    "static": lambda: NextLevelBertModel(toy_config(**TABLE, **MEANS)),
    "hate": lambda: HateModel(HateConfig(**DOUBLE, chunking="fixed", chunk_size=8, max_chunks=8)),
}
ROWS = Dim("documents")
CHUNKS = Dim("chunks", max=8)


def toy(name):
    torch.manual_seed(7)
    model = MODELS[name]().eval()
    if name == "static":
        mean, weight = fit_whitening([torch.randn(9, 32) for _ in range(9)])
        model.whitening.load_state_dict({"mean": mean, "weight": weight})
    return model


def vectors(rows=3, chunks=5):
    """Chunk vectors with padding at the end of one document, and within another."""
    mask = torch.ones(rows, chunks, dtype=torch.long)
    mask[1, 3:] = 0
    mask[0, 1] = 0
    return {"inputs_embeds": torch.randn(rows, chunks, 32), "attention_mask": mask}


def shapes(inputs, length):
    return {name: {0: ROWS, 1: length} for name in inputs}


@torch.no_grad()
@pytest.mark.parametrize("name", [pytest.param("static", marks=pytest.mark.long), "hate"])
def test_an_exported_graph_reads_other_numbers_of_documents_and_chunks(name):
    model = toy(name)
    batch = vectors()
    program = torch.export.export(model, (), batch, dynamic_shapes=shapes(batch, CHUNKS))
    for rows, chunks in ((2, 8), (5, 4)):
        other = vectors(rows, chunks)
        close(program.module()(**other).pooler_output, model(**other).pooler_output)


@pytest.mark.long
@torch.no_grad()
@pytest.mark.parametrize("name", ["layers", "hate"])
def test_onnx_gives_the_same_vectors(name, tmp_path):
    model = toy(name)
    batch = vectors()
    names = ["last_hidden_state", "pooler_output"]
    program = torch.onnx.export(
        model,
        (),
        kwargs=batch,
        dynamic_shapes=shapes(batch, CHUNKS),
        dynamo=True,
        optimize=False,
        verbose=False,
        output_names=[*names, "chunk_vectors", "chunk_mask"],
    )
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for rows, length in ((2, 8), (5, 4)):
        other = vectors(rows, length)
        inputs = {name: values.numpy() for name, values in other.items()}
        for name, values in zip(names, session.run(names, inputs), strict=True):
            close(torch.from_numpy(values), model(**other)[name], atol=1e-4)


@pytest.mark.long
@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_the_pass_over_vectors_compiles_without_graph_breaks(name):
    torch._dynamo.reset()
    model = toy(name)
    batch = vectors()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    close(compiled(**batch).pooler_output, model(**batch).pooler_output)
    if name == "layers":
        packed = packed_batch()
        inputs = {name: packed[name] for name in ("inputs_embeds", "special_ids")}
        close(compiled(**inputs).last_hidden_state, model(**inputs).last_hidden_state)


@pytest.mark.long
@torch.inference_mode()
def test_the_pass_over_texts_compiles_around_the_chunking():
    torch._dynamo.reset()
    model = toy("hate")
    ids = torch.full((2, 20), 1_000)
    compiled = torch.compile(model, backend="eager")
    close(compiled(ids).pooler_output, model(ids).pooler_output)
