"""Publishing and loading through the Hub's own client: corpora as dataset repositories, models as
model repositories.

The client reads its settings once, at import, so every step runs in a process of its own
(`fresh_process`).
"""

import json
import re
from pathlib import Path

import pytest
import torch
from huggingface_hub import DatasetCard

from nextlevelbert import ChunkingRule, Document, encode_corpus

from ..toys.finetuning import predictions, write
from ..toys.vectors import close

ROOT = Path(__file__).parents[2]
TEXT = (
    "The lighthouse keeper wrote every evening. He noted the wind, the height of the sea and the"
    " ships that passed. On the last page there was only a date. "
)
LONG_TEXT = (
    TEXT * 20
)  # more tokens than MiniLM takes, more chunks than a window of the toy model holds

PUSH_CORPUS = """
import json, sys
from nextlevelbert import VectorCorpus
print(json.dumps(VectorCorpus(sys.argv[1]).push_to_hub("user/books").oid))
"""

LOAD_CORPUS = """
import json
import re
from nextlevelbert import VectorCorpus
corpus = VectorCorpus.from_hub("user/books")
documents = [{"id": d.id, "vectors": d.plain.tolist(), "spans": d.spans.tolist()} for d in corpus]
print(json.dumps({"recipe": corpus.recipe, "documents": documents}))
"""


PUSH_MODEL = """
import json, sys, torch
from transformers import AutoTokenizer
from nextlevelbert import NextLevelBertModel
from tests.toys.vectors import toy_config
torch.manual_seed(0)
model = NextLevelBertModel(toy_config()).eval()
model.tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model.push_to_hub("user/toy")
print(json.dumps(model.encode([sys.argv[2]])[0].document.tolist()))
"""

LOAD_MODEL = """
import json, sys
import nextlevelbert
from sentence_transformers import SentenceTransformer
from transformers import AutoModel
model = AutoModel.from_pretrained("user/toy")
assert type(model) is nextlevelbert.NextLevelBertModel
vectors = SentenceTransformer("user/toy", device="cpu").encode([sys.argv[1]])
print(json.dumps([model.encode(sys.argv[1]).document.tolist(), *vectors.tolist()]))
"""

LOAD_WITHOUT_THE_PACKAGE = """
import json, sys
from transformers import AutoModel
model = AutoModel.from_pretrained("user/toy", trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules."), type(model)
print(json.dumps([model.encode(sys.argv[1]).document.tolist()]))
"""


RUN_SCRIPT = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def run(fresh_process):
    """Runs a script and gives the JSON of its last line."""
    return lambda *words, **options: json.loads(fresh_process(*words, **options).splitlines()[-1])


@pytest.fixture(scope="module")
def corpus(minilm, tmp_path_factory):
    """Three documents by the real MiniLM, in two shards, with a stray file beside them."""
    rule = ChunkingRule.from_tokenizer(minilm.tokenizer, 32)
    documents = [Document(f"book-{count}", TEXT * count) for count in (1, 2, 3)]
    folder = tmp_path_factory.mktemp("corpora") / "books"
    corpus = encode_corpus(
        documents, minilm, rule, folder, characters_per_part=3 * len(TEXT), progress=False
    )
    assert len(list(folder.glob("*.parquet"))) == 2
    (folder / "notes.txt").write_text("not part of the corpus")
    return corpus


@pytest.fixture(scope="module")
def pushed_corpus(run, corpus):
    run(PUSH_CORPUS, corpus.path)
    return corpus


@pytest.fixture(scope="module")
def toy_vector(run, minilm_path):
    """The vector of LONG_TEXT by a toy model that lies on the hub, computed before it went
    there."""
    return run(PUSH_MODEL, minilm_path, LONG_TEXT)


def test_corpus_comes_back_from_the_hub_as_it_was(run, pushed_corpus):
    loaded = run(LOAD_CORPUS)

    assert loaded["recipe"] == pushed_corpus.recipe
    assert [document["id"] for document in loaded["documents"]] == ["book-1", "book-2", "book-3"]

    for document, pushed in zip(loaded["documents"], pushed_corpus, strict=True):
        assert torch.equal(torch.tensor(document["vectors"], dtype=torch.float16), pushed.plain)
        assert document["spans"] == pushed.spans.tolist()


def test_corpus_repository_holds_the_corpus_and_a_card(hub, pushed_corpus, minilm_path):
    files = hub.files("dataset", "user/books")
    card = files["README.md"].decode()

    assert DatasetCard(card).data.tags == ["nextlevelbert", "chunk-vectors"]
    assert "sentence-transformers/all-MiniLM-L6-v2" in card
    assert 'VectorCorpus.from_hub("user/books")' in card

    parts = [path.name for path in sorted(pushed_corpus.path.glob("*.parquet"))]

    assert sorted(files) == sorted(["README.md", "_SUCCESS", *parts])

    for name in ("_SUCCESS", *parts):
        assert files[name] == (pushed_corpus.path / name).read_bytes()
    assert_no_path(files, pushed_corpus.path.parent, Path(minilm_path).parent, ROOT)


def assert_no_path(files, *folders):
    for name, content in files.items():
        for folder in folders:
            assert str(folder).encode() not in content, name


def test_pushing_a_corpus_again_changes_nothing(hub, run, pushed_corpus):
    before = hub.commits("dataset", "user/books")

    assert run(PUSH_CORPUS, pushed_corpus.path) == before[-1]
    assert hub.commits("dataset", "user/books") == before


@pytest.mark.parametrize(
    ("script", "hidden"), [(LOAD_MODEL, False), (LOAD_WITHOUT_THE_PACKAGE, True)]
)
def test_model_from_the_hub_gives_the_same_vector(run, toy_vector, script, hidden):
    for vector in run(script, LONG_TEXT, hidden=hidden):
        close(torch.tensor(vector), torch.tensor(toy_vector), atol=1e-6)


PUSH_ANOTHER = """
from huggingface_hub import HfApi
from nextlevelbert import NextLevelBertModel
from tests.toys.vectors import toy_config
HfApi().create_repo("user/written")
HfApi().upload_file(path_or_fileobj=b"Mine.", path_in_repo="README.md", repo_id="user/written")
NextLevelBertModel(toy_config()).push_to_hub("user/written")
"""


def test_the_card_on_the_hub_opens_the_model_unless_somebody_wrote_one(
    hub, fresh_process, toy_vector
):
    """In place of transformers' empty template."""
    card = hub.files("model", "user/toy")["README.md"].decode()
    lines = (
        '= NextLevelBertModel.from_pretrained("user/toy")',
        'AutoModel.from_pretrained("user/toy", trust_remote_code=True)',
        "- nextlevelbert",
    )
    for line in lines:
        assert line in card

    fresh_process(PUSH_ANOTHER)
    assert hub.files("model", "user/written")["README.md"].endswith(b"Mine.")


def test_the_pretraining_script_publishes_model_and_card(
    hub, fresh_process, toy_encoder_path, tmp_path
):
    """`--push_to_hub`: the last state, our card and its picture; no corpus, no text, no
    checkpoint."""
    (tmp_path / "books").mkdir()
    for index in range(4):
        (tmp_path / "books" / f"{index}.txt").write_text(TEXT * 10)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / ".tmpAbC123").write_text("half of the weights, of a run that was killed")
    argv = "--do_train --chunk_size 16 --sequence_length 32 --max_steps 2 --validation_share 0.25"
    argv += f" --chunk_encoder {toy_encoder_path} --train_file {tmp_path}/books"
    argv += f" --push_to_hub --hub_model_id user/books-model --output_dir {tmp_path}/model"
    fresh_process(RUN_SCRIPT, ROOT / "run_pretraining.py", *argv.split())
    files = hub.files("model", "user/books-model")

    assert files["model.safetensors"] == (tmp_path / "model" / "model.safetensors").read_bytes()
    assert "# user/books-model" in files["README.md"].decode()
    assert {"modeling_nextlevelbert.py", "modules.json", "tokenizer.json"} <= files.keys()
    assert not re.search("shard-|checkpoint-|[.]tmp", " ".join(files))

    assert_no_path(files, tmp_path)


LOAD_TRAINED = """
import json, sys
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification, AutoTokenizer
name = sys.argv[1]
model = AutoModelForSequenceClassification.from_pretrained(name, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
scores = model(**tokenizer(sys.argv[2], return_tensors="pt", verbose=False)).logits.softmax(-1)[0].tolist()
[accuracy] = [r.metric_value for r in ModelCard.load(name).data.eval_results if r.metric_type == "accuracy"]
print(json.dumps({"scores": scores, "accuracy": accuracy}))
"""


@pytest.mark.long
def test_the_finetuning_script_publishes_what_opens_again(
    hub, fresh_process, run, toy_encoder_path, tmp_path
):
    """A classifier, then a new head over it, both from the hub without the package."""
    rows = []
    for index in range(12):
        text = f"{('ship', 'bread')[index % 2]} {index}. " * 30
        rows.append({"id": str(index), "text": text, "label": index % 2})
    file = write(tmp_path / "rows.jsonl", rows)
    for name, model in (
        ("classifier", f"untrained --chunk_encoder {toy_encoder_path} --chunk_size 16"),
        ("head", "user/classifier --freeze_encoder"),
    ):
        output = tmp_path / name
        argv = f"--task classification --model {model} --train_file {file} --test_file {file}"
        argv += f" --num_train_epochs 2 --output_dir {output}"
        argv += f" --push_to_hub --hub_model_id user/{name}"
        fresh_process(RUN_SCRIPT, ROOT / "run_finetune.py", *argv.split())
        files = hub.files("model", f"user/{name}")
        expected = "model.safetensors modeling_nextlevelbert.py modules.json tokenizer.json"
        assert {*expected.split(), "README.md", "learning_curve.png"} <= files.keys()
        assert not re.search("seed-|jsonl|results.json", " ".join(files))
        assert_no_path(files, tmp_path)
        loaded = run(LOAD_TRAINED, f"user/{name}", rows[0]["text"], hidden=True)
        first, *_ = predictions(output / "test_predictions.jsonl")
        close(torch.tensor(loaded["scores"]), torch.tensor(first["scores"]))
        results = json.loads((output / "results.json").read_text())
        assert loaded["accuracy"] == pytest.approx(results["seeds"]["0"]["accuracy"], abs=1e-4)

    assert b"base_model: user/classifier" in files["README.md"]
