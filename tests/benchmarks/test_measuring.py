"""Printing and writing the figures of a study."""

import json

from benchmarks.common.measuring import write_figures


def test_figures_are_printed_and_written(tmp_path, capsys):
    path = tmp_path / "figures.json"
    rows = {"search": {"mrr": [0.5, 0.25, 0.75], "won / lost": "1 / 2"}, "words": {"p": 0.1}}

    write_figures(path, rows, queries=3)

    assert capsys.readouterr().out.splitlines() == [
        "|  | mrr | won / lost | p |",
        "| --- | ---: | ---: | ---: |",
        "| search | 0.500 (0.250 to 0.750) | 1 / 2 |  |",
        "| words |  |  | 0.100 |",
    ]
    assert json.loads(path.read_text()) == {"queries": 3, "rows": rows}


def test_figures_are_only_printed_without_a_file(capsys):
    write_figures(None, {"search": {"n": 3}})

    assert "| search | 3 |" in capsys.readouterr().out
