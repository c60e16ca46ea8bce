"""The example scripts beside those of the papers, each run as a person would, on small documents."""

from __future__ import annotations

from pathlib import Path

import torch

from nextlevelbert import (
    CdlmForCrossDocumentCoreference,
    CdlmProcessor,
    NextLevelBertModel,
    encode_corpus,
)

from .finetuning_toys import run_here

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_nearest_documents(minilm, tmp_path, capsys):
    """Each document's nearest is the other one about the same."""
    model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=32, num_hidden_layers=0)
    model.save_pretrained(tmp_path / "model")
    texts = {
        "whale": "The whale rose beside the ship. " * 9,
        "sailors": "The sailors saw a whale from their ship. " * 9,
        "bread": "She kneaded the dough for the bread. " * 9,
        "cake": "She baked a cake, and then the bread, in her oven. " * 9,
    }
    encode_corpus(list(texts.items()), minilm, model.config.chunking_rule(), tmp_path / "corpus", progress=False)
    words = ["--model", str(tmp_path / "model"), "--corpus_dir", str(tmp_path / "corpus"), "--top", "1", *texts]
    run_here(*words, script=EXAMPLES / "nearest_documents.py")
    nearest = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines() if line.startswith("  "))
    assert nearest == {"whale": "sailors", "sailors": "whale", "bread": "cake", "cake": "bread"}


def test_mentions_are_linked(encoder, tmp_path, capsys):
    """The groups are those of the probabilities that the model gives to each pair by itself."""
    torch.manual_seed(0)
    model = CdlmForCrossDocumentCoreference.from_encoder(encoder, max_length=64, attention_window=16)
    CdlmProcessor.from_model(model)
    model.save_pretrained(tmp_path / "linker")
    texts = ["A <m>storm</m> came. It <m>rained</m>.", "The <m>storm</m> passed.", "No mention."]
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    script = EXAMPLES / "link_mentions.py"

    def lines(threshold: str) -> list[str]:
        run_here("--model", str(tmp_path / "linker"), "--threshold", threshold, *map(str, files), script=script)
        return capsys.readouterr().out.splitlines()

    assert lines("0.999") == ["'storm' (0.txt)", "'rained' (0.txt)", "'storm' (1.txt)"]
    assert lines("0.001") == ["'storm' (0.txt); 'rained' (0.txt); 'storm' (1.txt)"]
