"""The checkpoints that come with the project: small, whole, and open as their cards say."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForPreTraining

import nextlevelbert
from nextlevelbert.evaluation import load_metric

from .vector_toys import close

ROOT = Path(__file__).parents[1]
STATIC, HATE = ROOT / "nextlevelbert" / "static", ROOT / "checkpoints" / "hate-static"
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
    assert sum(file.stat().st_size for file in folder.iterdir()) <= megabytes * 1e6
    assert not list(folder.glob("*.py"))
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {
        torch.float16
    }
    model = AutoModel.from_pretrained(folder).eval()
    assert type(model) is getattr(nextlevelbert, kind)
    by_model = torch.stack([book.document for book in model.encode(TEXTS)])
    by_sentence_transformers = SentenceTransformer(str(folder), device="cpu").encode(
        TEXTS, convert_to_tensor=True
    )
    close(by_model, by_sentence_transformers, atol=1e-6)
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
    with gzip.open(shared / "data/novels/validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        books = [json.loads(line) for line in lines]
    starts = [(book, part * len(book["text"]) // 9) for book in books for part in range(1, 9)]
    encoded = model.encode([book["text"][start : start + 10_000] for book, start in starts])
    means = [
        [model.prepare_chunks(b.plain).mean(dim=0) for b in encoded],
        [b.plain.mean(dim=0) for b in encoded],
    ]
    checkpoint, whitened_mean, mean = (
        load_metric("same_work_retrieval").compute(
            predictions=torch.stack(vectors).tolist(), references=[book["id"] for book, _ in starts]
        )["map"]
        for vectors in ([book.document for book in encoded], *means)
    )
    assert checkpoint > max(whitened_mean + 0.005, 0.9)
    assert whitened_mean > mean + 0.2
