"""Model cards: what the template makes of facts, as the Hub's own parser reads it; tables."""

import html
import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from nextlevelbert.training.arguments import BaseTrainingArguments
from nextlevelbert.training.cards import (
    CITATIONS,
    SIMILARITY_WIDGET,
    CardText,
    RunReport,
    code,
    collect_card,
    model_card,
    plain,
    results_table,
)
from nextlevelbert.training.runs import safe_name

SNIPPET = 'model = open("{name}")\nmodel.encode(["a <b> & a {{ brace }}"])'
TABLE = "| | f1 |\n| --- | --- |\n| model | 0.5 |"
TEXT = CardText(
    summary="A model that reads books.",
    snippet=SNIPPET,
    measured="On books.",
    limits=("It reads English only.", "It is small."),
    pipeline_tag="text-classification",
    tags=("nextlevelbert", "long-documents"),
)
NAME = "someone/model"
REPORT = RunReport(training={"learning_rate": 1e-4, "classes": "a|b"}, table=TABLE)


def test_a_card_says_what_it_is_told_and_no_more(tmp_path):
    model_card(TEXT, REPORT, name=NAME).save(tmp_path / "README.md")
    card = ModelCard.load(tmp_path / "README.md")

    assert card.text.strip().startswith(
        "# someone/model\n\nA model that reads books.\n\nThe package opens the model: `pip install"
        " nextlevelbert`, or until its first release `pip install .` in a clone.\n\n"
        f"```python\n{SNIPPET.replace('{name}', 'someone/model')}\n```\n\n## How it was"
    )

    sections = re.findall(
        r"^## (.+?)\n\n(.*?)(?=\n\n## |\Z)", card.text.strip(), flags=re.DOTALL | re.MULTILINE
    )
    table = (
        "| argument | value |\n| --- | --- |\n| learning_rate | `0.0001` |\n| classes | `a\\|b` |"
    )

    assert dict(sections) == {
        "How it was trained": table,
        "What was measured": f"On books.\n\n{TABLE}",
        "Limits": "- It reads English only.\n- It is small.",
    }

    known = {"library_name": "nextlevelbert", "pipeline_tag": TEXT.pipeline_tag}

    assert card.data.to_dict() == {
        **known,
        "tags": [*TEXT.tags],
    }  # the licence is the user's to choose


def test_a_training_tells_its_card_the_rest(tmp_path):
    """Licence, languages, data sets, base model, paper, and what the training ran on."""
    args = BaseTrainingArguments(
        output_dir=str(tmp_path / "reader"),
        use_cpu=True,
        license="apache-2.0",
        language=["en"],
        datasets=["someone/books"],
        gradient_accumulation_steps=2,
    )
    text = CardText(
        summary="A model that reads books.",
        intended_use="It finds books.",
        measured="On ten books.",
        limits=["It is small."],
        snippet='open("{name}")',
        pipeline_tag="text-classification",
        tags=["nextlevelbert"],
    )
    report = RunReport(
        training={"train set": "10 rows", "recurrence": None},
        table=results_table({"model": {"f1": 0.5}}),
        scores={"f1": 0.5},
        dataset="ten books",
        citation=CITATIONS["nextlevelbert"],
        base_model="someone/base",
        log=[{"step": 3}, {"step": 7}],
    )

    collect_card(args, text, report).save(tmp_path / "README.md")

    card = ModelCard.load(tmp_path / "README.md")
    data = card.data
    assert (data.license, data.language) == ("apache-2.0", ["en"])
    assert data.datasets == ["someone/books"]
    assert (data.base_model, data.model_name) == ("someone/base", "reader")
    lines = set(card.text.splitlines())
    assert {
        "It finds books.",
        'open("reader")',
        "| train set | `10 rows` |",
        "| optimizer_steps | `7` |",
        "| batch_size | `16` |",
        "| device | `cpu, 1 process(es)` |",
        "![Loss and scores over the training](learning_curve.png)",
        "On ten books.",
        "| model | 0.5000 |",
        "@inproceedings{czinczoll2024nextlevelbert,",
    } <= lines
    assert "recurrence" not in card.text
    assert ("| num_train_epochs | `3` |" in lines, "max_steps" in card.text) == (True, False)
    assert str(tmp_path) not in card.text


def test_scores_and_inputs_to_try_are_metadata_of_the_hub():
    scores = {"accuracy": 0.123456, "f1": float("nan")}
    report = replace(REPORT, scores=scores, dataset="a set", base_model="someone/base")
    unmeasured = replace(REPORT, scores={"f1": float("nan")}, dataset="a set")
    text = replace(TEXT, scored_task="text-retrieval", widget=SIMILARITY_WIDGET)
    data = model_card(text, report, name=NAME).data

    assert (data.model_name, data.base_model, data.library_name) == (
        "someone/model",
        "someone/base",
        "nextlevelbert",
    )
    assert set(data.widget[0]) == {"source_sentence", "sentences"}

    (result,) = data.eval_results

    assert (result.task_type, result.dataset_name) == ("text-retrieval", "a set")
    assert (result.metric_type, result.metric_value) == ("accuracy", 0.1235)
    assert "model-index" not in model_card(TEXT, unmeasured, name=NAME).content


HOSTILE = (
    "a\n\n## Another\n\ntext",
    "<script>alert(1)</script>",
    "![](https://else.where/x.png)",
    "`code` | ``two``",
    "<!--",
    "a\n```\nb",
    "~~~",
    "{{ facts }}",
    "---\nlicense: other\n---",
    "&lt;h1&gt;",
    "\u2028# x",
    " ",
)


def parsed(card):
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = [
        token for block in markdown.parse(card.text) for token in (block, *(block.children or ()))
    ]
    tables = [
        row.count("<td") + row.count("<th") for row in markdown.render(card.text).split("<tr>")[1:]
    ]
    return [token.type for token in tokens if token.type != "text"], tables


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_is_shown_as_it_is(tmp_path, text):
    """No heading, picture, link, HTML or further cell, and nothing in the metadata but the value
    itself."""

    def card_of(outside):
        text = replace(TEXT, summary=f"Fine-tuned on {plain(outside)}.")
        report = RunReport(
            training={"started from": outside},
            model_rows={"classes": f"{plain(outside)}, {plain('b')}", "encoder": code(outside)},
            table=results_table({outside: {"f1": 0.5}}),
            scores={"f1": 0.5},
            dataset=outside,
        )
        return model_card(text, report, name=safe_name(outside))

    assert parsed(card_of(text)) == parsed(card_of("harmless"))
    card_of(text).save(tmp_path / "README.md")
    loaded = ModelCard.load(tmp_path / "README.md")
    assert loaded.data.license is None
    assert loaded.data.eval_results[0].dataset_name == " ".join(text.split())
    shown = MarkdownIt("commonmark").enable("table").render(loaded.text)
    assert html.escape(" ".join(text.split()), quote=False).replace('"', "&quot;") in shown


def test_a_table_has_a_row_for_each_model_and_a_column_for_each_score():
    rows = {
        "model, 2 seeds": {"f1": (0.5, 0.01), "loss": 1.0, "count": 1_234},
        "a|b": {"f1": [0.25, 0.0], "auc": float("nan")},
    }

    assert results_table(rows).splitlines() == [
        "| | f1 | loss | count | auc |",
        "| --- | --- | --- | --- | --- |",
        "| model, 2 seeds | 0.5000 ± 0.0100 | 1.0000 | 1,234 |  |",
        "| a\\|b | 0.2500 ± 0.0000 |  |  |  |",
    ]
