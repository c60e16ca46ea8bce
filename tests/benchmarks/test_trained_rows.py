"""The measures of `benchmarks.studies.trained_rows`, on outputs of commands that are made by hand."""

import gzip
import json
from argparse import Namespace
from functools import partial

import pytest

from benchmarks.studies import novel_vectors, trained_rows
from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask

from ..examples.scripts import load_script
from ..toys.finetuning import write

ranking = load_script("hate/rank_documents.py")


def test_a_command_runs_once_in_a_folder_of_its_own(monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, pathlib; pathlib.Path(sys.argv[2]).mkdir(); print(sys.argv[1:])")
    runs = Namespace(folder=tmp_path, data=tmp_path / "data")
    run = partial(trained_rows.run_once, runs, "row", f"python {script}")

    seconds = run()

    assert seconds > 0
    assert (tmp_path / "row").is_dir()
    assert run() == seconds  # a second start would refuse the folder


def test_a_command_that_fails_is_no_result(tmp_path):
    runs = Namespace(folder=tmp_path)

    with pytest.raises(trained_rows.subprocess.CalledProcessError):
        trained_rows.run_once(runs, "row", "python -c 'raise SystemExit(3)'")

    assert not (tmp_path / "ended" / "row.json").exists()


def test_summaries_are_compared_with_those_of_the_controls(monkeypatch, tmp_path):
    sentences = ["a b c d", "e f g h", "i j k l"]
    article = {"sentences": sentences, "labels": [0, 1, 0], "summary": "e f g h"}
    (tmp_path / "bbc_extractive_summaries").mkdir()
    file = tmp_path / "bbc_extractive_summaries" / "validation.jsonl.gz"
    with gzip.open(file, "wt") as lines:
        lines.write(json.dumps(article) + "\n" + json.dumps(article) + "\n")
    chosen = {"bert-al, validation": [1], "first 3 sentences": [0], "TF-IDF centroid": [0, 1]}
    (tmp_path / "row").mkdir()
    write(tmp_path / "row" / "predictions.jsonl", [{"right": [1], "chosen": chosen}] * 2)
    monkeypatch.setitem(trained_rows.COMMANDS, "bert-al", {"row": ""})

    rows = trained_rows.measure_summaries(Namespace(folder=tmp_path, data=tmp_path))

    assert rows["row"]["rouge1"] == rows["row"]["precision"] == [1, 1, 1]
    assert rows["first 3 sentences"]["rouge1"] == [0, 0, 0]
    # Four of the control's eight words are right: F1 is 2 × 4 / (8 + 4).
    assert rows["TF-IDF centroid"]["rouge1"] == pytest.approx([2 / 3] * 3)
    assert rows["row"]["rouge1, minus TF-IDF centroid"] == pytest.approx([1 / 3] * 3)
    assert rows["row"]["precision, minus TF-IDF centroid"] == pytest.approx([0.5] * 3)


def test_accuracies_are_compared_article_by_article(monkeypatch, tmp_path, small_tokenizer):
    small_tokenizer.save_pretrained(tmp_path / "encoder")
    (tmp_path / "hyperpartisan").mkdir()
    with gzip.open(tmp_path / "hyperpartisan" / "validation.jsonl.gz", "wt") as file:
        for text in ("one", "a b c d e f", "g h i j k l"):
            file.write(json.dumps({"text": text}) + "\n")
    predictions = {"chunkbert": ["111", "110"], "truncated": ["100"], "tfidf": ["111"]}
    for name, of_seeds in predictions.items():
        for seed, digits in enumerate(of_seeds):
            folder = tmp_path / name / f"seed-{seed}"
            folder.mkdir(parents=True)
            records = [{"prediction": digit, "label": "1"} for digit in digits]
            write(folder / "validation_predictions.jsonl", records)
    monkeypatch.setitem(trained_rows.COMMANDS, "chunkbert", dict.fromkeys(predictions, ""))
    monkeypatch.setattr(trained_rows, "LONG", 5)
    runs = Namespace(folder=tmp_path, data=tmp_path, encoder=tmp_path / "encoder")

    rows = trained_rows.measure_classes(runs)

    assert rows["chunkbert"]["all"][0] == pytest.approx(2.5 / 3)
    assert rows["chunkbert"]["long"][0] == 0.75
    assert rows["chunkbert"]["long, minus truncated"] == [0.75, 0.5, 1.0]
    assert rows["truncated"]["all, minus tfidf"][0] == pytest.approx(-2 / 3)


def test_the_rank_of_the_right_story_counts(tmp_path):
    (tmp_path / "ranker").mkdir()
    scores = {"pretrained": {"mrr@10": 0.75}, "BM25": {"mrr@10": 1.0}}
    (tmp_path / "ranker" / "results.json").write_text(json.dumps({"rows": scores}))
    lines = ["1-1-1 Q0 1 1 .9 run", "1-1-1 Q0 2 2 .8 run", "2-1-1 Q0 1 1 .9 run"]
    lines += ["2-1-1 Q0 2 2 .8 run", "2-1-2 Q0 2 11 .1 run"]
    (tmp_path / "ranker" / "predictions.trec").write_text("\n".join(lines))

    rows = trained_rows.measure_rankings(Namespace(folder=tmp_path))

    assert rows["BM25"] == {"mrr": 1.0}
    # Of the second story's answers, one is second, and one below the tenth place.
    assert rows["pretrained"]["mrr"] == pytest.approx([0.5, 0.25, 1.0])


def test_links_are_compared_with_those_of_the_start(monkeypatch, tmp_path):
    mentions = [(f"{topic}_1ecb", place) for topic in range(8) for place in range(4)]
    for name in ("start-linked", "cdlm-linked"):
        records = []
        for document, place in mentions:
            gold = f"{document} {place % 2}"
            cluster = gold
            if name.startswith("start"):
                cluster = document
            records.append({"document": document, "start": place, "gold": gold, "cluster": cluster})
        (tmp_path / name).mkdir()
        write(tmp_path / name / "validation_predictions.jsonl", records)
    monkeypatch.setitem(
        trained_rows.COMMANDS, "cdlm", dict.fromkeys(["cdlm", "start-linked", "cdlm-linked"], "")
    )

    rows = trained_rows.measure_links(Namespace(folder=tmp_path))

    assert rows.keys() == {"start-linked", "cdlm-linked"}
    assert rows["cdlm-linked"]["conll_f1"] == [1, 1, 1]
    gain = rows["cdlm-linked"]["conll_f1, minus start"]
    assert gain == pytest.approx([1 - rows["start-linked"]["conll_f1"][0]] * 3)
    assert rows["cdlm-linked"]["p"] < 0.05  # eight topics of eight


def stories_of(shared):
    with gzip.open(shared / "data" / "squality" / "validation.jsonl.gz", "rt") as file:
        return file.read()


def test_squality_is_written_as_ms_marco_is(shared, tmp_path):
    args = Namespace(folder=tmp_path, data=shared / "data")

    trained_rows.write_squality(args)
    train = ranking.read_split(tmp_path / "msmarco", "doctrain", is_training=True)
    test = ranking.read_split(tmp_path / "msmarco", "docdev", is_training=False)

    assert (len(train.queries), len(train.documents)) == (1_000, 50)
    assert (len(test.queries), len(test.documents)) == (500, 25)
    assert not train.documents.keys() & test.documents.keys()
    assert {*map(len, test.candidates.values())} == {25}
    # Names are deleted; this one begins the first story.
    assert "Stand by for T.R.S. Aphrodite" in stories_of(shared)
    assert not any("Aphrodite" in text for text in test.documents.values())


@pytest.fixture
def vectors(toy_encoder_path, monkeypatch, tmp_path):
    """Folder of a study of three tiny novels, encoded."""
    subjects = ("the whale swims", "a train departs", "bread is baked")
    novels = {f"novel-{index}": f"{words} today. " * 80 for index, words in enumerate(subjects)}
    rows = [{"id": name, "text": text} for name, text in novels.items()]
    write(tmp_path / "train.jsonl", rows)
    chapters = {}
    same = {}
    for name, text in novels.items():
        chapters |= {f"{name}#1": text, f"{name}#2": text}
        same |= {f"{name}#1": {f"{name}#2": 1}, f"{name}#2": {f"{name}#1": 1}}
    tasks = [
        RetrievalTask("books", chapters, chapters, same),
        RetrievalTask("neighbours", chapters, chapters, same),
        RetrievalTask("squality", {"a": "It swims."}, novels, {"a": {"novel-0": 1}}),
    ]
    monkeypatch.setattr(novel_vectors, "load_tasks", lambda data: tasks)
    folders = Namespace(data=None, novels=tmp_path, folder=tmp_path / "vectors")
    novel_vectors.encode(Namespace(encoder=toy_encoder_path, bf16=False, **vars(folders)))
    return folders.folder


def test_trained_models_are_compared_with_means_of_their_chunks(
    vectors, toy_encoder_path, monkeypatch
):
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, include_chunk_encoder=False)
    names = ("no-layers-0", "200-steps-no-layers-0", "layers-0", "layers-1")
    for name in names:
        model.save_pretrained(vectors.parent / name)
    monkeypatch.setitem(trained_rows.COMMANDS, "next-level-bert", dict.fromkeys(names, ""))

    rows = trained_rows.measure_vectors(Namespace(folder=vectors.parent))

    assert {*rows} == {"mean", "whitened mean", "no-layers", "200-steps-no-layers", "layers"}
    # Both chapters of a novel have the same text.
    assert rows["layers"]["chapters"] == [1, 1, 1]
    assert rows["mean"]["chapters, minus mean"] == [0, 0, 0]
    assert rows["layers"]["squality"] == rows["no-layers"]["squality"]


def test_every_family_has_a_measure():
    assert trained_rows.COMMANDS.keys() == trained_rows.MEASURES.keys()
