"""The folder of an int8 chunk encoder, changed after it was written: every change is named."""

from __future__ import annotations

import pytest

from nextlevelbert import ChunkingRule, load_chunk_encoder, load_int8_chunk_encoder, quantize_chunk_encoder
from tests.golden.inputs import DOCUMENTS, FOLDER

from .damage import try_each


@pytest.mark.parametrize(("flips", "cuts"), [(4, 1), pytest.param(30, 5, marks=pytest.mark.faults)])
def test_every_file(tmp_path, flips, cuts):
    source = load_chunk_encoder(str(FOLDER / "encoder" / "sentences"), "golden/encoder")
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=40)
    whole = tmp_path / "whole"
    quantize_chunk_encoder(source, [document.text for document in DOCUMENTS], rule, whole, chunks=8)
    names = sorted(path.name for path in whole.iterdir())
    assert len(names) == 3
    tally = try_each(lambda folder: load_int8_chunk_encoder(source, folder).encoder.precision, whole, tmp_path, names,
                     flips, cuts)  # fmt: skip
    print(tally)
    assert tally.bad == [], str(tally)
    for name in names:
        # The facts are JSON, and end in a line break: without it they are the same facts.
        harmless = tally.counts[name]["same"] if name.endswith(".json") else 0
        assert tally.counts[name]["clear"] + harmless == flips + cuts + 2, str(tally)
        assert harmless <= 1, str(tally)
