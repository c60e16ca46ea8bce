"""The checkpoints that come with the project: small, whole, and open as their cards say."""

import json
import re
from pathlib import Path

import evaluate
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForPreTraining

import nextlevelbert
from nextlevelbert import read_documents

from .toys.vectors import close

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "nextlevelbert" / "static"
HATE = ROOT / "checkpoints" / "hate-static"
MINILM = ROOT / "checkpoints" / "nextlevelbert-minilm-256"
TEXTS = ["Call me Ishmael. I went to sea. " * 200, "It is a truth universally acknowledged."]
# A user who has transformers and sentence-transformers, and not this package.
ELSEWHERE = """
import json, sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu")
print(json.dumps(model.encode(json.loads(sys.argv[2])).tolist()))
"""


@pytest.mark.parametrize(
    ("folder", "megabytes", "kind"), [(STATIC, 27, "NextLevelBertModel"), (HATE, 10, "HateModel")]
)
def test_it_is_small_and_one_path_equals_the_other(
    folder, megabytes, kind, fresh_process, tmp_path
):
    """Saved again, also where the package is missing."""
    assert Path(nextlevelbert.static_checkpoint()) == STATIC

    size = 0
    for file in folder.iterdir():
        assert file.suffix != ".py"
        size += file.stat().st_size

    assert size <= megabytes * 1e6

    for tensor in load_file(folder / "model.safetensors").values():
        assert tensor.dtype == torch.float16
    model = AutoModel.from_pretrained(folder).eval()

    assert type(model) is getattr(nextlevelbert, kind)

    by_model = torch.stack([book.document for book in model.encode(TEXTS)])
    opened = SentenceTransformer(str(folder), device="cpu")
    close(by_model, opened.encode(TEXTS, convert_to_tensor=True), atol=1e-6)
    model.save_pretrained(tmp_path)
    elsewhere = json.loads(fresh_process(ELSEWHERE, tmp_path, json.dumps(TEXTS), hidden=True))
    close(by_model, torch.tensor(elsewhere), atol=1e-6)


def test_the_masked_vector_model_reads_minilm_s_vectors(minilm):
    """It holds no chunk encoder, so MiniLM is given; another encoder is refused by name."""
    model = AutoModelForPreTraining.from_pretrained(MINILM).base_model.eval()
    book = model.encode(TEXTS[0], chunk_encoder=minilm)

    assert book.chunks.shape == book.plain.shape == (len(book.spans), 384)

    other = nextlevelbert.load_chunk_encoder(str(STATIC))
    with pytest.raises(ValueError, match=r"all-MiniLM-L6-v2 \(.*all-MiniLM-L6-v2-static \("):
        model.encode(TEXTS[0], chunk_encoder=other)


@pytest.mark.parametrize("folder", [STATIC, HATE, MINILM])
def test_its_card_lies_in_its_folder_and_its_code_runs(folder, page_folder, capsys):
    """In a folder that holds the checkpoint by its name, and with MiniLM where the Hub would put
    it."""
    (page_folder / folder.name).symlink_to(folder)
    card = (folder / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    namespace: dict = {}
    for block in blocks:
        exec(block, namespace)
    width = namespace["model"].config.hidden_size

    assert namespace["book"].document.shape == (width,)
    assert f"torch.Size([{width}])" in capsys.readouterr().out


def test_it_finds_excerpts_of_unseen_books_better_than_both_means(shared):
    model = AutoModel.from_pretrained(STATIC).eval()
    excerpts = []
    books = []
    for book in read_documents(shared / "data/novels/validation.jsonl.gz"):
        for part in range(1, 9):
            start = part * len(book.text) // 9
            excerpts.append(book.text[start : start + 10_000])
            books.append(book.id)
    vectors: dict[str, list[torch.Tensor]] = {"document": [], "whitened mean": [], "mean": []}
    for encoded in model.encode(excerpts):
        vectors["document"].append(encoded.document)
        vectors["whitened mean"].append(model.prepare_chunks(encoded.plain).mean(dim=0))
        vectors["mean"].append(encoded.plain.mean(dim=0))
    metric = evaluate.load(str(ROOT / "metrics" / "same_work_retrieval"))
    found = {}
    for name, rows in vectors.items():
        scores = metric.compute(predictions=torch.stack(rows).tolist(), references=books)
        found[name] = scores["map"]

    assert found["document"] > max(found["whitened mean"] + 0.005, 0.9)
    assert found["whitened mean"] > found["mean"] + 0.2
