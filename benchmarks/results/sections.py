"""The tables of docs/results.md: commands that measure them, and how figures are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from benchmarks.results.cells import (
    Cell,
    Measured,
    count,
    difference,
    make_table,
    merge,
    score,
    score_with_bounds,
    text,
)
from benchmarks.results.trained import (
    bert_al_table,
    cdlm_table,
    chunkbert_table,
    hate_table,
    next_level_bert_table,
    objective_table,
    tasks_table,
)


@dataclass(frozen=True)
class Section:
    """A part of the results that is measured by one command.

    Attributes:
        name: name of its JSON file and of its markers in the page.
        command: the command, which writes the file ``{json}``. The words in braces are inputs of
            `benchmarks.results`, or ``{folder}``, which is kept between runs.
        needs: time on one core and memory.
        table: makes the cells of the table from the JSON of this section and of those of `also`
            that were measured, by name; None if another section shows the figures.
        prepare: commands that run before, by the path that each of them makes.
        also: further sections with rows or columns in the table.
        about: number of queries, seeds, and what intervals are drawn over.
    """

    name: str
    command: str
    needs: str
    table: Callable[[Mapping[str, Measured]], list[list[str]]] | None = None
    prepare: Mapping[str, str] = field(default_factory=dict)
    also: Sequence[str] = ()
    about: str = ""


# --- Document vectors

_HOLD_OUT = {
    "{folder}/novels/train.jsonl": (
        "python -m benchmarks.studies.hold_out --data {data} --output_dir {folder}/novels"
    )
}
_KINDS = {
    "{folder}/kinds/train/rfcs.jsonl": (
        "python -m benchmarks.studies.kinds_of_text --data {data} --packages {manuals}"
        " --output_dir {folder}/kinds"
    )
}
_DOCUMENT_COLUMNS = {
    "books": ("books", score),
    "neighbours": ("neighbours", score),
    "excerpts": ("excerpts", score),
    "SQuALITY": ("squality", score),
    "books, with names": ("books, with names", score),
    "books, minus TF-IDF": ("books, minus TF-IDF", difference),
    "books, minus the whitened mean": ("books, minus whitened", difference),
}
_DOCUMENT_ROWS = {
    "static": "nextlevelbert-static (two maps over whitened static vectors)",
    "static + TF-IDF": "— with TF-IDF's cosine added, 0.2 to 0.8",
    "static: their whitened mean": "whitened mean of static chunk vectors",
    "static: mean of its chunk vectors": "mean of static chunk vectors",
    "nextlevelbert-minilm-256": "nextlevelbert-minilm-256 (whitened, contrastive, residual)",
    "nextlevelbert-minilm-256: their whitened mean": "whitened mean of MiniLM's chunk vectors",
    "nextlevelbert-minilm-256: mean of its chunk vectors": (
        "mean of MiniLM's chunk vectors (Avg. SBERT)"
    ),
    "nextlevelbert-minilm-256: first chunk": "first chunk (SBERT, 256 tokens)",
    "TF-IDF": "TF-IDF",
    "BM25": "BM25",
}


def document_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    return make_table(merge(measured), "names masked", _DOCUMENT_COLUMNS, _DOCUMENT_ROWS)


_HELD_OUT_COLUMNS = {
    "books": ("books", score_with_bounds),
    "minus nextlevelbert-static": ("books, minus the first", difference),
    "six chapters": ("books, six chapters", score_with_bounds),
    "six, minus nextlevelbert-static": ("books, six chapters, minus the first", difference),
    "letters only": ("books, letters only", score),
    "books, with names": ("books, with names", score),
    "neighbours": ("neighbours", score),
}
_EXCERPT_COLUMNS = {
    "excerpts": ("excerpts", score_with_bounds),
    "minus nextlevelbert-static": ("excerpts, minus the first", difference),
    "letters only": ("excerpts, letters only", score_with_bounds),
    "letters only, minus nextlevelbert-static": (
        "excerpts, letters only, minus the first",
        difference,
    ),
    "excerpts, with names": ("excerpts, with names", score_with_bounds),
}
_HELD_OUT_ROWS = {
    **_DOCUMENT_ROWS,
    "static": "nextlevelbert-static",
    "fit": "`fit`, to the 198 other novels",
}
# It was trained on these novels.
del _HELD_OUT_ROWS["nextlevelbert-minilm-256"]


def held_out_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    return make_table(merge(measured), "names masked", _HELD_OUT_COLUMNS, _HELD_OUT_ROWS)


def held_out_excerpts_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    return make_table(part, "names masked", _EXCERPT_COLUMNS, _HELD_OUT_ROWS)


_HEAD_ROWS = {
    "static": "nextlevelbert-static",
    "static: their whitened mean": "whitened mean of static chunk vectors",
    "static: mean of its chunk vectors": "mean of static chunk vectors",
    "fit, to the training documents": "`fit`, to the training documents",
    "nextlevelbert-minilm-256": "nextlevelbert-minilm-256",
    "nextlevelbert-minilm-256: mean of its chunk vectors": "mean of MiniLM's chunk vectors",
    "nextlevelbert-minilm-256: mean of its chunk vectors + TF-IDF": (
        "mean of MiniLM's chunk vectors, and TF-IDF beside it"
    ),
    "the first tokens": "MiniLM, the first 256 tokens",
    "TF-IDF": "TF-IDF",
}


_MINILM = " checkpoints/nextlevelbert-minilm-256 --encoder {encoder} --cache {folder}/minilm"


def _frozen_heads(articles: str, more: str = "") -> str:
    """Returns the command for a set of articles, with further models and options."""
    return (
        f"python -m benchmarks.studies.frozen_heads --train_file {{data}}/{articles}/train.jsonl.gz"
        f" --test_file {{data}}/{articles}/validation.jsonl.gz --model nextlevelbert/static{more}"
        " --json {json}"
    )


def heads_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    rows: dict[str, dict[str, Any]] = {}
    columns = {}
    for section, part in measured.items():
        articles = "Hyperpartisan"
        if "news" in section:
            articles = "BBC News"
        columns[f"{articles} ({part['test']:,})"] = (articles, score_with_bounds)
        for row, cells in part["rows"].items():
            rows.setdefault(row, {})[articles] = cells["accuracy"]
    heading = "accuracy of a logistic regression on frozen vectors"
    return make_table({"rows": rows}, heading, columns, _HEAD_ROWS)


# --- The closed form of `fit`

_CLOSED_FORM_ROWS = {
    "fit": "`fit`: whitened static vectors and hashed TF-IDF",
    "fit, whitened twice": "— whitened twice",
    "whitened": "whitened mean of static chunk vectors",
    "whitened twice": "— whitened twice",
    "shrunk": "— and shrunk to the variance between documents",
    "mean": "mean of static chunk vectors",
    "TF-IDF": "TF-IDF",
    "BM25": "BM25",
}
_COMPARED = {
    "fit, whitened twice": "`fit`",
    "whitened twice": "the whitened mean",
    "shrunk": "the whitened mean",
    "TF-IDF": "`fit`",
}


def closed_form_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    columns: dict[str, tuple[str, Cell]] = {
        name.replace("_", " "): (name, score) for name in part["queries"]
    }
    head, *others = make_table(part, "fitted without training", columns, _CLOSED_FORM_ROWS)
    table = [head]
    for row, cells in zip(_CLOSED_FORM_ROWS, others, strict=True):
        table.append(cells)
        if row in _COMPARED:
            figures = part["rows"][row]
            bounds = [difference(figures[f"{name}, difference"]) for name in part["queries"]]
            table.append([f"— minus {_COMPARED[row]}", *bounds])
    return table


# --- A new table of token vectors


def token_tables(measured: Mapping[str, Measured]) -> list[list[str]]:
    """Makes a row for each task, because the tables are compared by task."""
    [part] = measured.values()
    present, *new = part["tables"]
    table = [["whitened mean", "n", present, *(name.replace("-", " ") for name in new)]]
    for task, figures in part["rows"].items():
        bounds = [difference(figures[f"{name}, difference"]) for name in new]
        scores = [score(figures[name]) for name in new]
        cells = [f"{shown} ({gain})" for shown, gain in zip(scores, bounds, strict=True)]
        table.append([task.replace("_", " "), f"{figures['n']:,}", score(figures[present]), *cells])
    return table


# --- Masked vectors


def masked_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    names = {
        "two nearest": "mean of the two nearest visible chunks, whitened",
        ".7 ** distance": "visible chunks weighed by 0.7 to the power of their distance",
        "least squares": "nine numbers by least squares",
    }
    keys = [key for key in part["rows"]["two nearest"] if "minus" not in key]
    columns: dict[str, tuple[str, Cell]] = {}
    for key in keys:
        novels, candidates = key.split(": ")
        columns[f"{novels}: of {candidates}"] = (key, score)
        if candidates.startswith("8"):
            columns[f"{novels}: minus the first row"] = (
                f"{key}, minus two nearest",
                difference,
            )
    return make_table(part, "found, without training", columns, names)


_TRIAL_ROWS = {
    "neighbours": "two nearest visible chunks, untrained",
    "weighed": "visible chunks weighed by 0.7 to the power of their distance, untrained",
    "least_squares": "nine numbers by least squares",
    "whitened mean": "whitened mean of the chunk vectors",
    "h": "one layer: whitened inputs, eight offsets, dropout (h)",
    "h, second seed": "— second seed",
    "i": "— plain inputs (i)",
    "j": "— one offset (j)",
    "k": "— no dropout (k)",
    "l": "— for what the weighed neighbours leave (l)",
    "h, 1/2 of the novels": "h with half of the novels",
    "h, 1/4 of the novels": "h with a quarter of the novels",
    "h, 1/8 of the novels": "h with an eighth of the novels",
    "h, 1/8 of the novels, second seed": "— second seed",
    "h, novels and texts": "h with the novels and further texts",
    "h, novels and texts, second seed": "— second seed",
    "h, five times": "h, 1,500,000 positions",
}
_STAGE_ROWS = {
    "whitened mean": "whitened mean of the chunk vectors",
    "static": "nextlevelbert-static: linear maps, segments",
    "static, beside": "— beside the whitened mean",
    "random": "random layer, segments",
    "random, beside": "— beside the whitened mean",
    "masks": "masks (h), then segments",
    "masks, beside": "— beside the whitened mean",
}


def trial_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    columns: dict[str, tuple[str, Cell]] = {
        "chunks to train on": ("chunks", count),
        "unseen novels: of 8,192": ("unseen: of 8,192", score),
        "minus the weighed": ("unseen: of 8,192, minus weighed", difference),
        "unseen novels: of all": ("unseen: of all masked", score),
        "training novels: of 8,192": ("training: of 8,192", score),
        "training novels: of all": ("training: of all masked", score),
        "books": ("chapters", score),
        "books, beside": ("chapters, beside", score),
        "beside, minus the whitened mean": ("chapters, beside, minus whitened", difference),
        "SQuALITY, beside": ("squality, beside", score),
    }
    return make_table(part, "found; MAP and MRR", columns, _TRIAL_ROWS)


def stages_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    columns: dict[str, tuple[str, Cell]] = {}
    for heading, task in {"books": "chapters", "SQuALITY": "squality"}.items():
        columns[heading] = (task, score)
        columns[f"{heading}, minus the whitened mean"] = (
            f"{task}, minus whitened mean",
            difference,
        )
        columns[f"{heading}, minus nextlevelbert-static"] = (f"{task}, minus static", difference)
    columns["books, minus the random layer beside"] = (
        "chapters, minus random, beside",
        difference,
    )
    return make_table(part, "MAP and MRR", columns, _STAGE_ROWS)


# --- Search


_SEARCH_ROWS = {
    "search": "**`search`**",
    "— its words alone": "its words alone",
    "— its vectors alone": "its vectors alone",
    "bm25s": "bm25s, with its defaults",
    "TF-IDF (scikit-learn)": "TF-IDF of scikit-learn, with its defaults",
    "minilm alone": "MiniLM alone, all passages",
    "search --rerank minilm": "`search --rerank minilm`",
    "search --model minilm": "`search --model minilm`",
}


def score_with_short_bounds(value: Sequence[float]) -> str:
    mean, low, high = value
    return f"{mean:.3f} ({low:.2f} to {high:.2f})"


def everyday_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    columns: dict[str, tuple[str, Cell]] = {
        "MRR (95 %)": ("mrr", score_with_short_bounds),
        "right in the first 1 / 5 / 20": ("hits", text),
        "won / lost": ("won / lost", text),
    }
    kinds = {
        "Python": "python-manual",
        "Git": "git-manual",
        "GNOME": "gnome-help",
        "GnuCash": "gnucash-manual",
        "news": "news",
    }
    for heading, kind in kinds.items():
        if kind in part["passages"]:
            columns[heading] = (kind, score)
    return make_table(part, f"{part['questions']} questions", columns, _SEARCH_ROWS)


def book_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    """Adds the MRR over novels, which the first 30 questions are about, and over other books."""
    [part] = measured.values()
    rows = {}
    for row, cells in part["rows"].items():
        reciprocal = [1 / int(rank) for rank in cells["ranks"].split()]
        rows[row] = {**cells, "novels": fmean(reciprocal[:30]), "others": fmean(reciprocal[30:])}
    columns: dict[str, tuple[str, Cell]] = {
        "MRR (95 %)": ("mrr", score_with_short_bounds),
        "right in the first 1 / 5 / 20": ("hits", text),
        "won / lost": ("won / lost", text),
        "30 on novels": ("novels", score),
        "20 on other books": ("others", score),
    }
    return make_table({"rows": rows}, f"{part['questions']} questions", columns, _SEARCH_ROWS)


# --- Coreference


def coreference_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    names = {row: row for row in part["rows"]}
    columns = {"CoNLL F1, events": ("conll_f1", score_with_bounds)}
    return make_table(part, "rule without training", columns, names)


_DOCUMENTS = "python -m benchmarks.studies.document_vectors --data {data}"
_FITTED = {
    **_HOLD_OUT,
    "{folder}/fit/model.safetensors": (
        "nextlevelbert fit {folder}/novels/train.jsonl --output {folder}/fit"
    ),
}
_QUESTIONS = (
    "python -m benchmarks.studies.search_table --packages {packages} --shared {data}/.."
    " --output_dir {folder}/everyday --json {json}"
)

_TRIAL = {
    **_HOLD_OUT,
    "{folder}/masked-trial/whitened_means.json": (
        "python -m benchmarks.studies.masked_objectives encode --data {data}"
        " --novels {folder}/novels --texts {texts} --folder {folder}/masked-trial"
        " --encoder nextlevelbert/static --num_hidden_layers 1 --offsets 8"
    ),
}
_MASKED_TRIAL = (
    "python -m benchmarks.studies.masked_trial --folder {folder}/masked-trial --json {json}"
)

_STUDY = "{folder}/trained/next-level-bert/vectors"
_VECTORS = {
    **_HOLD_OUT,
    f"{_STUDY}/whitened_means.json": (
        "python -m benchmarks.studies.masked_objectives encode --data {data}"
        f" --novels {{folder}}/novels --folder {_STUDY} --encoder {{encoder}} --bf16"
    ),
}

_CHUNK_STUDY = "{folder}/chunk-study"
_MASKED_RUN = f"{_CHUNK_STUDY}/runs/j-0-300000-128"
_CHUNK_TASKS = {
    **_HOLD_OUT,
    f"{_CHUNK_STUDY}/whitened_means.json": (
        "python -m benchmarks.studies.masked_objectives encode --data {data}"
        f" --novels {{folder}}/novels --folder {_CHUNK_STUDY}"
        " --encoder nextlevelbert/static --num_hidden_layers 1"
    ),
    f"{_MASKED_RUN}/figures.json": (
        f"python -m benchmarks.studies.masked_trial --folder {_CHUNK_STUDY} --runs j"
    ),
    "{folder}/chunk-tasks/validation.json": (
        "python -m benchmarks.studies.chunk_tasks encode --data {data} --novels {folder}/novels"
        f" --study {_CHUNK_STUDY} --folder {{folder}}/chunk-tasks --encoder nextlevelbert/static"
    ),
}


def _trained(family: str) -> str:
    """Returns the command that trains and measures the models of a family."""
    return (
        f"python -m benchmarks.studies.trained_rows {family} --data {{data}} --encoder {{encoder}}"
        f" --folder {{folder}}/trained/{family} --json {{json}}"
    )


SECTIONS = (
    Section(
        "coreference-rules",
        command=(
            "python -m benchmarks.studies.coreference_rules"
            " --file {data}/ecbplus/validation.jsonl.gz --json {json}"
        ),
        needs="1 minute, 0.5 GiB",
        table=coreference_table,
        about="197 documents, 1,245 mentions; intervals over 8 topics.",
    ),
    Section(
        "everyday-questions",
        command=_QUESTIONS,
        needs="3 minutes, 1 GiB",
        table=everyday_table,
        about="Intervals over 50 questions; no seed.",
    ),
    Section(
        "everyday-questions-minilm",
        command=f"{_QUESTIONS} --encoder minilm --passages 300",
        needs="7 minutes, 1.5 GiB",
        table=everyday_table,
        about="Intervals over 50 questions; passages are drawn with seed 0.",
    ),
    Section(
        "novel-questions",
        command=f"{_QUESTIONS} --kinds novels",
        needs="3 minutes, 1 GiB",
        table=everyday_table,
        about="14,987 passages of 22 novels; intervals over 24 questions; no seed.",
    ),
    Section(
        "novel-questions-minilm",
        command=f"{_QUESTIONS} --kinds novels --encoder minilm --passages 300",
        needs="6 minutes, 1.5 GiB",
        table=everyday_table,
        about="2,021 passages of the six novels; intervals over 24 questions; no seed.",
    ),
    Section(
        "book-questions",
        command=f"{_QUESTIONS} --kinds books --encoder minilm",
        needs="30 minutes, 2 GiB",
        table=book_table,
        about="9,946 passages of 26 long books; intervals over 50 questions; no seed.",
    ),
    Section(
        "document-vectors",
        command=f"{_DOCUMENTS} --model nextlevelbert/static --json {{json}}",
        needs="4 minutes, 2 GiB",
        table=document_table,
        also=["document-vectors-minilm"],
        about=(
            "761 chapters, 168 excerpts and 500 answers; intervals over 22 novels; one seed of"
            " the trained models."
        ),
    ),
    Section(
        "document-vectors-minilm",
        command=(
            f"{_DOCUMENTS} --model checkpoints/nextlevelbert-minilm-256"
            " --chunk_encoder {encoder} --cache {folder}/minilm --tasks books neighbours squality"
            " --json {json}"
        ),
        needs="40 minutes, 2 GiB",
    ),
    Section(
        "held-out-novels",
        prepare=_FITTED,
        command=(
            f"{_DOCUMENTS} --novels held_out --model nextlevelbert/static {{folder}}/fit"
            " --tasks books neighbours 'books, six chapters' 'books, with names'"
            " 'books, letters only' --json {json}"
        ),
        needs="8 minutes, 2 GiB",
        table=held_out_table,
        also=["held-out-novels-minilm"],
        about=(
            "505 chapters of 18 novels, six chapters of each in two columns; intervals over novels;"
            " one seed of the trained model."
        ),
    ),
    Section(
        "held-out-novels-minilm",
        command=(
            f"{_DOCUMENTS} --novels held_out --tasks 'books, six chapters'"
            " --model nextlevelbert/static checkpoints/nextlevelbert-minilm-256"
            " --chunk_encoder {encoder} --cache {folder}/minilm --json {json}"
        ),
        needs="8 minutes, 2 GiB",
    ),
    Section(
        "held-out-excerpts",
        prepare=_FITTED,
        command=(
            f"{_DOCUMENTS} --novels held_out --model nextlevelbert/static {{folder}}/fit"
            " --tasks excerpts 'excerpts, letters only' 'excerpts, with names' --json {json}"
        ),
        needs="2 minutes, 2 GiB",
        table=held_out_excerpts_table,
        about="Eight excerpts of 10,000 characters of 20 novels; intervals over novels.",
    ),
    Section(
        "frozen-heads",
        command=_frozen_heads("hyperpartisan"),
        needs="2 minutes, 2 GiB",
        table=heads_table,
        also=["frozen-heads-news", "frozen-heads-minilm", "frozen-heads-news-minilm"],
        about="514 and 1,647 articles to train with; intervals over the test articles.",
    ),
    Section("frozen-heads-news", command=_frozen_heads("bbc_news"), needs="4 minutes, 2 GiB"),
    Section(
        "frozen-heads-minilm",
        command=_frozen_heads("hyperpartisan", _MINILM),
        needs="8 minutes, 2 GiB",
    ),
    Section(
        "frozen-heads-news-minilm",
        command=_frozen_heads("bbc_news", _MINILM),
        needs="15 minutes, 2 GiB",
    ),
    Section(
        "kinds-of-text",
        prepare=_KINDS,
        command=(
            "python -m benchmarks.studies.second_whitening --kinds {folder}/kinds --json {json}"
        ),
        needs="5 minutes, 2 GiB",
        table=closed_form_table,
        about="Four excerpts of each held-out document; intervals over documents.",
    ),
    Section(
        "token-tables",
        prepare=_KINDS,
        command=(
            "python -m benchmarks.studies.token_tables --data {data} --kinds {folder}/kinds"
            " --table {tables}/one-map {tables}/map-and-offsets --json {json}"
        ),
        needs="2 minutes, 1 GiB",
        table=token_tables,
        about="MAP, and MRR of SQuALITY; intervals over novels, stories and documents.",
    ),
    Section(
        "closed-form",
        prepare=_HOLD_OUT,
        command=(
            "python -m benchmarks.studies.second_whitening --data {data} --novels {folder}/novels"
            " --json {json}"
        ),
        needs="7 minutes, 3 GiB",
        table=closed_form_table,
        about=(
            "761 chapters, 168 excerpts and 500 answers, names masked; intervals over 22 novels"
            " and 25 stories."
        ),
    ),
    Section(
        "masked-controls",
        prepare=_HOLD_OUT,
        command=(
            "python -m benchmarks.studies.masked_controls --data {data} --novels {folder}/novels"
            " --folder {folder}/masked --json {json}"
        ),
        needs="5 minutes, 3 GiB",
        table=masked_table,
        about=(
            "Masks are drawn with seed 1 in 22 validation and 40 training novels; intervals over"
            " novels."
        ),
    ),
    Section(
        "masked-trial",
        prepare=_TRIAL,
        command=_MASKED_TRIAL,
        needs="45 minutes, 2 GiB",
        table=trial_table,
        about=(
            "300,000 positions a run unless the row says more, seeds 0 and 1. Masks are drawn once,"
            " in 22 validation and 22 training novels; 761 chapters and 500 answers; intervals"
            " over novels and books."
        ),
    ),
    Section(
        "two-stages",
        prepare={
            **_TRIAL,
            "{folder}/masked-trial/runs/h-0-1500000-128/figures.json": _MASKED_TRIAL,
        },
        command=(
            "python -m benchmarks.studies.two_stages --folder {folder}/masked-trial --json {json}"
        ),
        needs="40 minutes after masked-trial, 2 GiB",
        table=stages_table,
        about=(
            "300 batches of 64 pairs a run, means of two seeds. 761 chapters and 500 answers;"
            " intervals over 22 novels and 25 stories."
        ),
    ),
    Section(
        "minilm-objectives",
        prepare=_VECTORS,
        command=f"python -m benchmarks.studies.minilm_objectives --folder {_STUDY} --json {{json}}",
        needs="40 minutes and an hour to encode, with instructions for bfloat16; 2 GiB",
        table=objective_table,
        about=(
            "300,000 positions a run, after the novels were encoded. Masks are drawn once, in 22"
            " validation and 22 training novels; 761 chapters and 500 answers; intervals over"
            " novels and books."
        ),
    ),
    Section(
        "trained-next-level-bert",
        prepare=_VECTORS,
        command=_trained("next-level-bert"),
        needs="40 minutes and an hour to encode, with instructions for bfloat16; 2 GiB",
        table=next_level_bert_table,
        about=(
            "Two seeds, after the novels were encoded. 761 chapters and 500 answers; intervals"
            " over 22 novels."
        ),
    ),
    Section(
        "trained-hate",
        command=_trained("hate"),
        needs="10 minutes, 2 GiB",
        table=hate_table,
        about="One seed; 1,000 answers to train with; interval over 25 stories.",
    ),
    Section(
        "trained-chunkbert",
        command=_trained("chunkbert"),
        needs="an hour with instructions for bfloat16; 2 GiB",
        table=chunkbert_table,
        about="One seed; 514 articles to train with; intervals over 64 articles.",
    ),
    Section(
        "trained-bert-al",
        command=_trained("bert-al"),
        needs="an hour and a half, 2 GiB",
        table=bert_al_table,
        about="One seed; 300 steps of four of 1,580 articles; intervals over 203 other articles.",
    ),
    Section(
        "trained-cdlm",
        command=_trained("cdlm"),
        needs="an hour, 3 GiB",
        table=cdlm_table,
        also=["coreference-rules"],
        about="One seed; 197 documents, 1,245 mentions; intervals over 8 topics.",
    ),
    Section(
        "chunk-tasks",
        prepare=_CHUNK_TASKS,
        command=(
            f"python -m benchmarks.studies.chunk_tasks train --study {_CHUNK_STUDY}"
            f" --folder {{folder}}/chunk-tasks --run {_MASKED_RUN}/checkpoint-586 --json {{json}}"
        ),
        needs="30 minutes, 3 GiB",
        table=tasks_table,
        about=(
            "Two passes over 198 novels, means of three seeds; intervals over 22 other novels, of"
            " the difference to the best row that was not pretrained."
        ),
    ),
)
