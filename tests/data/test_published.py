"""Published data sets, whose files are made here."""

import json
from pathlib import Path

import pytest

from nextlevelbert.data.published import (
    ecbplus,
    hotpotqa,
    zhou_pairs,
)

from ..finetuning_toys import write

# For each set a good row, and then malformed ones.
ROWS = json.loads(Path(__file__).with_name("malformed_rows.json").read_text())


@pytest.mark.parametrize("published", [ecbplus, hotpotqa])
def test_a_malformed_row_is_named_by_file_and_line(published, tmp_path):
    good, *malformed = ROWS[published.__name__.rpartition(".")[2]]
    for row in malformed:
        path = write(tmp_path / "rows.jsonl", [good, row])
        with pytest.raises(ValueError, match=r"rows\.jsonl, line 2.*, column '"):
            published.load(path)


def test_a_malformed_pair_of_zhou_et_al_is_named(tmp_path):
    (tmp_path / "train.csv").write_text('1,a,b\n0,"c\nd",e\n1,"f"g,h\n')
    with pytest.raises(ValueError, match=r"train\.csv, line 4: "):
        zhou_pairs.load(tmp_path / "train.csv")
    (tmp_path / "train.csv").write_text("1,a,b\n0,c\n")
    with pytest.raises(ValueError, match=r"train\.csv, line 2, column 'text2'"):
        zhou_pairs.load(tmp_path / "train.csv")
