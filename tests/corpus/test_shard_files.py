"""A shard file: what is written is read, and a head, vectors or spans that do not fit are refused."""

from __future__ import annotations

import pytest
import torch

from nextlevelbert.corpus.shard_files import open_shard, read_shard_head, shard_bytes

TENSORS = {
    "vectors": torch.arange(32.0).half().reshape(4, 8) / 32,
    "spans": torch.tensor([[0, 3], [4, 9], [0, 5], [0, 2]]),
    "document_offsets": torch.tensor([0, 2, 3, 4]),
}
DOCUMENTS = [{"id": name, "sha256": "0" * 32, "characters": 9, "tokens": 5} for name in "abc"]


@pytest.fixture
def write(tmp_path):
    def write(documents=DOCUMENTS, **changes):
        path = tmp_path / "shard-00000.safetensors"
        path.write_bytes(shard_bytes("chain", documents, {**TENSORS, **changes}))
        return path

    return write


@pytest.mark.parametrize("with_sums", [True, False])
def test_what_is_written_is_read(write, with_sums):
    head = read_shard_head(write(), with_sums)
    assert (head.documents, head.chain, head.chunks, head.hidden_size) == (DOCUMENTS, "chain", 4, 8)
    assert head.offsets.tolist() == [0, 2, 3, 4]
    file = open_shard(write(), head.sums)
    assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in TENSORS.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"document_offsets": torch.tensor([0, 3, 2, 4])}, "do not rise from 0 to 4"),
        ({"document_offsets": torch.tensor([1, 2, 3, 4])}, "do not rise from 0 to 4"),
        ({"document_offsets": torch.tensor([0, 1, 2, 3])}, "do not rise from 0 to 4"),
        ({"document_offsets": torch.tensor([0, 2, 4])}, r"3 documents, but .* document_offsets \[3\]"),
        ({"document_offsets": torch.tensor([0, 2, 3, 4]).int()}, "document_offsets .* int32"),
        ({"vectors": torch.zeros(4, 8)}, r"vectors \[4, 8\] F32"),
        ({"spans": torch.zeros(3, 2, dtype=torch.long)}, r"spans \[3, 2\] I64"),
        ({"spans": torch.zeros(4, 2)}, r"spans \[4, 2\] F32"),
        ({"documents": [{"id": "a"}] * 3}, "described by other fields"),
    ],
)
@pytest.mark.parametrize("with_sums", [True, False])
def test_a_head_that_does_not_fit(write, changes, message, with_sums):
    with pytest.raises(ValueError, match=f"shard-00000.safetensors is not a whole shard .*{message}"):
        read_shard_head(write(**changes), with_sums)


@pytest.mark.parametrize("name", ["vectors", "spans", "document_offsets", "head"])
def test_one_other_bit_is_noticed(write, name):
    path = write()
    content, head = bytearray(path.read_bytes()), read_shard_head(path)
    place = content.index(b"sha256") + 12 if name == "head" else content.index(TENSORS[name].numpy().tobytes()) + 3
    content[place] ^= 1
    path.write_bytes(content)
    if name in ("vectors", "spans"):
        with pytest.raises(ValueError, match=f"is damaged: its {name} do not have their check sum"):
            open_shard(path, head.sums)
    else:
        with pytest.raises(ValueError, match=r"is not a whole shard .* check sum"):
            read_shard_head(path)


def test_without_check_sums_numbers_are_looked_at(write):
    vectors, spans = TENSORS["vectors"].clone(), TENSORS["spans"].clone()
    vectors[2, 5], spans[3] = float("nan"), torch.tensor([2, 1])
    with pytest.raises(ValueError, match="has vectors that are not finite"):
        open_shard(write(vectors=vectors), None)
    with pytest.raises(ValueError, match="has spans that run backwards"):
        open_shard(write(spans=spans), None)
