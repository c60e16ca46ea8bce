"""The command that measures the results: its tables, what it does again, and the pages themselves."""

import json
from argparse import Namespace

import pytest

from benchmarks.results import __main__ as results
from benchmarks.results.cells import difference, group, make_table, merge, score, score_with_bounds
from benchmarks.results.page import MARKED, markdown, provenance, render
from benchmarks.results.sections import SECTIONS, Section

FACTS = {"commit": "0123abcd", "date": "2026-11-28"}


def test_a_table_marks_the_best_score_of_each_column():
    rows = {
        "a": {"map": 0.7504, "mrr": [0.5, 0.4, 0.6], "gain": [0.1, -0.05, 0.2]},
        "b": {"map": 0.7496, "mrr": [0.25, 0.2, 0.3], "gain": [0.0, 0.0, 0.0]},
        "c": {"map": 0.7499},
    }
    columns = {
        "MAP": ("map", score),
        "MRR": ("mrr", score_with_bounds),
        "gain": ("gain", difference),
    }

    table = make_table(
        {"rows": rows}, "row", columns, {"b": "second", "a": "first", "c": "third", "d": ""}
    )

    assert table == [
        ["row", "MAP", "MRR", "gain"],
        ["second", "**0.750**", "0.250 (0.200 to 0.300)", ""],
        ["first", "**0.750**", "**0.500** (0.400 to 0.600)", "−0.050 to +0.200"],
        ["third", "**0.750**", "", ""],
    ]


def test_a_group_has_a_heading_in_bold_and_the_columns_of_the_whole_table():
    columns = {"MAP": ("map", score), "gain": ("gain", difference), "MRR": ("mrr", score)}
    rows = {"a": {"map": 0.5, "gain": [0.1, -0.05, 0.2]}}

    table = make_table({"rows": rows}, "", columns, {"a": "first"})

    assert group("18 novels", table, {"gain": "minus TF-IDF"}) == [
        ["**18 novels**", "", "minus TF-IDF", ""],
        ["first", "**0.500**", "−0.050 to +0.200", ""],
    ]
    assert group("18 novels", table)[0] == ["**18 novels**", "", "", ""]


def test_rows_of_two_sections_are_put_together():
    first = {"rows": {"a": {"x": 1.0}}}
    second = {"rows": {"a": {"y": 2.0}, "b": {"x": 3.0}}}

    assert merge({"one": first, "two": second}) == {
        "rows": {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 3.0}}
    }


def test_only_what_is_between_the_markers_is_written():
    page = "a\n<!-- results: one -->\nold\n<!-- end -->\nb\n<!-- results: two -->\n<!-- end -->\n"
    tables = {"one": markdown([["x", "y"], ["1", "2"]]), "two": "new"}

    rendered = render(page, tables)

    assert rendered == (
        "a\n<!-- results: one -->\n| x | y |\n| --- | ---: |\n| 1 | 2 |\n<!-- end -->\nb\n"
        "<!-- results: two -->\nnew\n<!-- end -->\n"
    )
    assert render(rendered, tables) == rendered
    assert render(page, {"three": ""}) == page


def test_a_table_says_how_it_was_measured():
    other = {"commit": "4567abcd", "date": "2026-11-29"}

    text = provenance("Over 8 topics.", {"one": FACTS, "two": other, "three": FACTS})

    assert " ".join(text.split()) == (
        "Measured by `one`, `three` (2026-11-28, commit 0123abcd), `two` (2026-11-29, commit 4567abcd)."
        " Over 8 topics."
    )


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """One section, whose command is replaced, and a list of the commands that were run."""
    section = Section(
        "toy",
        command="python -m toy --data {data} --json {json}",
        needs="a second",
        prepare={"{folder}/made": "python -m make"},
        table=lambda measured: [["", "x"], ["a", score(measured["toy"]["rows"]["a"]["x"])]],
    )
    page = tmp_path / "page.md"
    page.write_text("<!-- results: toy -->\n<!-- end -->\n", encoding="utf-8")
    run = []

    def run_command(command, inputs):
        run.append(command)
        inputs["json"].write_text(json.dumps({"rows": {"a": {"x": len(run) / 10}}}))
        (inputs["folder"] / "made").touch()
        return 2.0, 0.25

    monkeypatch.setattr(results, "SECTIONS", (section,))
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "PAGES", ("page.md",))
    monkeypatch.setattr(results, "MEASURED", tmp_path / "measured")
    monkeypatch.setattr(results, "code_commit", lambda: "first")
    monkeypatch.setattr(results, "run", run_command)
    return Namespace(section=section, page=page, run=run)


def start(monkeypatch, *options):
    monkeypatch.setattr("sys.argv", ["results", *options])
    results.main()


def test_a_section_is_measured_again_only_for_other_code(toy, monkeypatch, capsys):
    start(monkeypatch, "--data", "DATA")

    assert toy.run == ["python -m make", toy.section.command]
    measured = results.read_measured("toy")
    assert measured["command"] == "python -m toy --data DATA --json FILE"
    assert (measured["commit"], measured["cpu_seconds"], measured["peak_gib"]) == ("first", 4, 0.2)
    assert "| a | 0.200 |" in toy.page.read_text()

    start(monkeypatch, "--data", "ELSEWHERE")
    assert len(toy.run) == 2
    assert "toy: measured at first already" in capsys.readouterr().out

    monkeypatch.setattr(results, "code_commit", lambda: "second")
    start(monkeypatch, "--data", "DATA")
    assert len(toy.run) == 4
    assert "| a | 0.400 |" in toy.page.read_text()


def test_a_study_counts_the_trainings_that_it_keeps(toy, monkeypatch):
    def run_command(command, inputs):
        figures = {"rows": {"a": {"x": 0.5}}, "cpu_seconds": 100}
        inputs["json"].write_text(json.dumps(figures))
        return 2.0, 0.25

    monkeypatch.setattr(results, "run", run_command)

    start(monkeypatch, "--data", "DATA")

    assert results.read_measured("toy")["cpu_seconds"] == 100
    assert "peak_gib" not in results.read_measured("toy")


def test_a_section_without_its_inputs_is_left_out(toy, monkeypatch, capsys):
    start(monkeypatch, "--list")
    assert "| toy | a second | --data | not yet |" in capsys.readouterr().out

    start(monkeypatch, "--only", "toy")
    assert "toy: left out, give --data" in capsys.readouterr().out
    assert toy.run == []


@pytest.mark.parametrize("name", results.PAGES)
def test_the_tables_of_a_page_are_those_of_the_measured_figures(name):
    page = (results.ROOT / name).read_text(encoding="utf-8")

    assert render(page, results.tables()) == page


def test_the_figures_are_those_of_the_present_commands():
    for section in SECTIONS:
        measured = results.read_measured(section.name)
        assert measured is None or measured["command"] == results.shown_command(section)


def test_every_table_is_in_the_page():
    page = (results.ROOT / "docs/results.md").read_text(encoding="utf-8")

    names = [match[2] for match in MARKED.finditer(page)]

    assert sorted(names) == sorted(results.tables())
    assert page.count("\n| --- ") == len(names) == 5
