"""The authors' published inference code, on random weights: vectors, sequences and documents to
1e-5."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from nextlevelbert import load_chunk_encoder
from nextlevelbert.models.tokenizing import tokenize_document

from ..examples.scripts import load_script

convert_checkpoint = load_script("next_level_bert/convert_checkpoint.py").convert_checkpoint


@pytest.fixture(scope="session")
def tiny(shared):
    return shared / "reference" / "nextlevelbert" / "tiny"


@pytest.fixture(scope="session")
def encoders(tiny, tmp_path_factory):
    """The fixture's encoder as it is, and a copy without its Normalize step."""
    bare = tmp_path_factory.mktemp("bare") / "encoder"
    shutil.copytree(tiny / "encoder", bare)
    shutil.copy(tiny / "modules_without_normalize.json", bare / "modules.json")
    return {True: load_chunk_encoder(str(tiny / "encoder")), False: load_chunk_encoder(str(bare))}


@pytest.fixture
def authors_model(tiny, encoders, tmp_path):
    """Converts the authors' checkpoint, saves it and opens it."""

    def converted(chunk_size, normalize=True, **config):
        model = convert_checkpoint(tiny / "checkpoint", encoders[normalize], chunk_size)
        model.save_pretrained(tmp_path)
        return AutoModel.from_pretrained(tmp_path, **config)

    return converted


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("file", "chunk_size", "texts", "normalize"),
    [
        ("expected_chunk16", 16, "texts", True),
        ("expected_chunk64", 64, "texts", True),
        ("expected_chunk16_without_normalize", 16, "texts", False),
        ("expected_chunk64_without_normalize", 64, "texts", False),
        ("expected_edge_chunk16", 16, "edge_texts", True),
    ],
)
@pytest.mark.filterwarnings("ignore:Document")  # that a document without a token is named
def test_documents_as_the_authors_encode_them(
    tiny, authors_model, file, chunk_size, texts, normalize
):
    expected = load_file(tiny / f"{file}.safetensors")
    documents = json.loads((tiny / "texts.json").read_text())[texts]
    model = authors_model(chunk_size, normalize, long_documents="truncate")
    rule = model.config.chunking_rule()
    for index, text in enumerate(documents):
        tokens = tokenize_document(model.tokenizer, text)
        boundaries = rule.boundaries(tokens.input_ids)
        assert len(boundaries) - 1 == expected["n_chunks"][index]
        if len(boundaries) == 1:
            continue
        ids = expected[f"text{index}.chunk_input_ids"].numpy()
        for row, start, end in zip(ids, boundaries[:-1], boundaries[1:], strict=True):
            wrapped = [101, *tokens.input_ids[start:end].tolist(), 102]
            assert row[: len(wrapped)].tolist() == wrapped
            assert not row[len(wrapped) :].any()
    for index, embedding in enumerate(model.encode(documents)):
        close(embedding.document, expected["document_embeddings"][index])
        close(embedding.plain, expected.get(f"text{index}.chunk_vectors", torch.zeros(0, 32)))
        sequence = expected[f"text{index}.sequence_output"]
        close(embedding.chunks, sequence[1:-1])


@torch.no_grad()
@pytest.mark.parametrize("chunk_size", [16, 64])
def test_the_special_positions_too(tiny, authors_model, chunk_size):
    """Hidden states at [CLS] and [SEP] of a document alone, and what enters the encoder."""
    expected = load_file(tiny / f"expected_chunk{chunk_size}.safetensors")
    model = authors_model(chunk_size)
    for index in range(4):
        vectors = expected[f"text{index}.chunk_vectors"]
        if len(vectors) > model.config.max_chunks:
            continue
        output = model(inputs_embeds=vectors[None], output_hidden_states=True)
        close(output.hidden_states[-1][0], expected[f"text{index}.sequence_output"])


@torch.no_grad()
def test_sentences_given_as_chunks(tiny, authors_model):
    """Chunk size 0 is sentence mode, and a sentence has as many tokens as the encoder reads (256).

    Without the authors' splitter: one chunk a given sentence.
    """
    expected = load_file(tiny / "expected_sentences.safetensors")
    documents = json.loads((tiny / "sentences.json").read_text())
    model = authors_model(0, long_documents="truncate")

    assert (model.config.chunking, model.config.chunk_size) == ("sentences", 256)
    assert model.plan("The ship sailed. Nobody waved. It was cold.").chunks == 3

    rule = model.config.chunking_rule()
    vectors = []
    for index, sentences in enumerate(documents["documents_as_sentences"]):
        ids = [tokenize_document(model.tokenizer, text).input_ids[:254] for text in sentences]
        boundaries = np.cumsum([0, *map(len, ids)])
        vectors.append(model.get_chunk_encoder().encode(np.concatenate(ids), boundaries, rule))
        close(vectors[-1], expected[f"text{index}.chunk_vectors"])
    contextual, pooled = model.contextualize(vectors)
    close(pooled, expected["document_embeddings"])
    for index, rows in enumerate(contextual):
        close(rows, expected[f"text{index}.sequence_output"][1:-1])


def test_windows_agree_with_the_authors_up_to_their_limit(tiny, authors_model):
    """Windowing changes nothing for documents of one window, and keeps what truncation loses for
    longer ones."""
    expected = load_file(tiny / "expected_chunk16.safetensors")
    texts = json.loads((tiny / "texts.json").read_text())["texts"]
    model = authors_model(16)
    embeddings = model.encode(texts)
    for index in range(3):
        close(embeddings[index].document, expected["document_embeddings"][index])

    assert len(embeddings[3].chunks) == expected["n_chunks"][3] == 572
    assert (embeddings[3].document - expected["document_embeddings"][3]).abs().max() > 1e-3
