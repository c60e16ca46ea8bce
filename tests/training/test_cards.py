"""Model cards: what the template makes of facts, as the Hub's own parser reads it."""

import html
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from nextlevelbert.training import cards
from nextlevelbert.training.cards import CardFacts, code, plain, safe_name, write_card
from nextlevelbert.training.plots import plot_confusion, results_table

MODEL_CARDS = Path(__file__).parents[2] / "model_cards"
FACTS = CardFacts(
    name="someone/model",
    summary="A model that reads books.",
    snippet='model = open("someone/model")\nmodel.encode(["a <b> & a {{ brace }}"])',
    measured="| | f1 |\n| --- | --- |\n| model | 0.5 |",
    limits=("It reads English only.", "It is small."),
    pipeline_tag="text-classification",
    tags=("nextlevelbert", "long-documents"),
    training={"learning_rate": 1e-4, "classes": "a|b"},
)


def sections(card):
    text = card.text.strip()
    return dict(re.findall(r"^## (.+?)\n\n(.*?)(?=\n\n## |\Z)", text, flags=re.DOTALL | re.MULTILINE))


def test_a_card_says_what_it_is_told_and_no_more(tmp_path):
    write_card(tmp_path, FACTS)
    card = ModelCard.load(tmp_path / "README.md")
    assert re.search(r"[^\n]\n\Z", (tmp_path / "README.md").read_text())
    assert card.text.strip().startswith(
        f"# someone/model\n\nA model that reads books.\n\n```python\n{FACTS.snippet}\n```\n\n## How it was trained\n\n"
    )
    assert sections(card) == {
        "How it was trained": (
            "| argument | value |\n| --- | --- |\n| learning_rate | `0.0001` |\n| classes | `a\\|b` |"
        ),
        "What was measured": FACTS.measured,
        "Limits": "- It reads English only.\n- It is small.",
    }
    assert card.data.to_dict() == {
        "license": "apache-2.0",
        "library_name": "nextlevelbert",
        "pipeline_tag": "text-classification",
        "tags": ["nextlevelbert", "long-documents"],
    }


# The fields that the Hub's widgets take, by `pipeline_tag`.
FIELDS = {
    "sentence-similarity": {"source_sentence", "sentences"},
    "summarization": {"text"},
    "question-answering": {"text", "context"},
    "text-classification": {"text"},
}


@pytest.mark.parametrize(
    ("tag", "widget"),
    [
        ("sentence-similarity", cards.SIMILARITY_WIDGET),
        ("summarization", cards.SUMMARY_WIDGET),
        ("question-answering", cards.QUESTION_WIDGET),
    ],
)
def test_the_page_of_a_model_offers_inputs(tmp_path, tag, widget):
    write_card(tmp_path, replace(FACTS, pipeline_tag=tag, widget=widget))
    [offered] = ModelCard.load(tmp_path / "README.md").data.widget
    assert offered == widget[0]
    assert set(offered) == FIELDS[tag]


@pytest.mark.parametrize("path", sorted(MODEL_CARDS.glob("*/README.md")), ids=lambda path: path.parent.name)
def test_the_cards_of_checkpoints_have_a_task_and_inputs(path):
    data = ModelCard.load(path).data
    if "cross-document-coreference" in data.tags:  # its input is several documents, which no widget takes
        assert (data.pipeline_tag, data.get("widget")) == ("token-classification", None)
        return
    assert data.widget
    assert [set(example) for example in data.widget] == [FIELDS[data.pipeline_tag]] * len(data.widget)


def test_every_optional_part_has_its_place(tmp_path):
    more = {
        "note": "A note.",
        "model": {"layers": "`6`"},
        "training_note": "Trained twice.",
        "pictures": {"curve.png": "Loss", "more.png": "More"},
    }
    card = write_card(tmp_path, replace(FACTS, **more))
    assert "```\n\nA note.\n\n## What it is\n\n| | |\n| --- | --- |\n| layers | `6` |\n\n## How" in card.text
    assert card.text.count("Trained twice.\n\n![Loss](curve.png)\n\n![More](more.png)\n\n## What was measured") == 1
    assert "\n\n\n" not in card.text


def test_scores_are_metadata_of_the_hub(tmp_path):
    scores = {"accuracy": 0.123456, "f1": float("nan")}
    facts = replace(FACTS, scores=scores, dataset="a set", adapter=True, base_model="someone/base")
    data = write_card(tmp_path, facts).data
    assert (data.model_name, data.base_model, data.library_name) == ("someone/model", "someone/base", "peft")
    assert data.tags == ["nextlevelbert", "long-documents", "lora"]
    (result,) = data.eval_results
    assert (result.task_type, result.dataset_name) == ("text-classification", "a set")
    assert (result.metric_type, result.metric_value) == ("accuracy", 0.1235)


@pytest.mark.parametrize("scores", [{}, {"f1": float("nan")}])
def test_without_scores_there_are_no_results(tmp_path, scores):
    assert "model-index" not in write_card(tmp_path, replace(FACTS, scores=scores, dataset="a set")).content


def test_what_the_scores_measure_can_differ_from_what_the_model_is_for(tmp_path):
    facts = replace(
        FACTS, scores={"mrr": 1.0}, dataset="a set", scored_task="text-retrieval", scored_task_name="search"
    )
    (result,) = write_card(tmp_path, facts).data.eval_results
    assert (result.task_type, result.task_name) == ("text-retrieval", "search")


HOSTILE = (
    "# A heading", "a\n\n## Another\n\ntext", "a\r\n===", "<script>alert(1)</script>", "![](https://else.where/x.png)",
    "[click](javascript:alert(1))", "a | b", "`code` | ``two``", "`", "\\", "\\|", "<img src=x onerror=y>", "<!--",
    "a\n```\nb", "***", "~~~", "{{ facts }}", "{% include 'x' %}", "---\nlicense: other\n---", "&lt;h1&gt;",
    "\u2028# x", "$\\frac$", " ", "\x85# y", "a\n\n| x |\n| - |\n| y |", "https://else.where",
)  # fmt: skip


def parsed(card):
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = [token for block in markdown.parse(card.text) for token in (block, *(block.children or ()))]
    tables = [row.count("<td") + row.count("<th") for row in markdown.render(card.text).split("<tr>")[1:]]
    return [token.type for token in tokens if token.type != "text"], tables


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_is_shown_as_it_is(tmp_path, text):
    """No heading, picture, link, HTML or further cell, and nothing in the metadata but the value itself."""

    def card_of(outside):
        return write_card(
            tmp_path,
            replace(
                FACTS,
                name=safe_name(outside),
                snippet=f'model = open("{safe_name(outside)}")',
                summary=f"Fine-tuned on {plain(outside)}.",
                model={"classes": f"{plain(outside)}, {plain('b')}", "encoder": code(outside)},
                training={"started from": outside},
                measured=results_table({outside: {"f1": 0.5}}),
                scores={"f1": 0.5},
                dataset=outside,
            ),
        )

    assert parsed(card_of(text)) == parsed(card_of("harmless"))
    card_of(text)
    loaded = ModelCard.load(tmp_path / "README.md")
    assert loaded.data.license == "apache-2.0"
    assert loaded.data.eval_results[0].dataset_name == " ".join(text.split())
    shown = MarkdownIt("commonmark").enable("table").render(loaded.text)
    assert html.escape(" ".join(text.split()), quote=False).replace('"', "&quot;") in shown


def test_a_name_stays_within_its_string():
    assert safe_name('x")\nimport os # `é') == "x---import os - -é"
    assert safe_name("someone/my-model_1.0 + é@main") == "someone/my-model_1.0 + é@main"


def test_a_class_named_like_a_formula_is_drawn(tmp_path):
    plot_confusion(np.array([0, 1]), np.array([0, 1]), ["$\\frac$", "$x_$"], tmp_path / "confusion.png")
    assert (tmp_path / "confusion.png").stat().st_size > 1000
