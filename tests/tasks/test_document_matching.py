"""Document matching with CDLM, from sets to card."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel

from nextlevelbert import CdlmForDocumentMatching, CdlmModel, CdlmProcessor

from ..finetuning_toys import SCRIPT, write

pytestmark = pytest.mark.usefixtures("no_pictures")
TRAINING = [
    "--max_length", "64", "--attention_window", "16", "--learning_rate", "3e-3", "--lr_scheduler_type", "constant",
    "--warmup_steps", "0", "--per_device_train_batch_size", "4", "--disable_tqdm", "true",
]  # fmt: skip


def pairs(folder: Path, name: str, count: int, seed: int) -> str:
    """Documents that belong together where both are about the sea."""
    draw, made = np.random.default_rng(seed), []
    for _ in range(count):
        words = draw.choice(["sea", "oven"], 2)
        texts = [" ".join([f"the {word} and the {word}"] * 2) for word in words]
        made.append({"text1": texts[0], "text2": texts[1], "label": int((words == "sea").all())})
    return write(folder / name, made)


def test_adapters_learn_to_match_documents(run_script, encoder, tmp_path):
    base = tmp_path / "base"
    model = CdlmModel.from_encoder(encoder, max_length=64, attention_window=16)
    files = ["--train_file", pairs(tmp_path, "train.jsonl", 48, 0), "--validation_file",
             pairs(tmp_path, "validation.jsonl", 16, 1)]  # fmt: skip
    options = ["--task", "document_matching", *files, *TRAINING, "--lora", "--num_train_epochs", "6"]
    with pytest.raises(ValueError, match=r"--lora adapts a saved CDLM .* tiny lacks <doc-s>"):
        run_script(SCRIPT, "--model", encoder, *options, "--output_dir", str(tmp_path / "no"))
    CdlmProcessor.from_model(model)
    model.save_pretrained(base)
    options[options.index("--attention_window") : options.index("--attention_window") + 2] = []
    run_script(SCRIPT, "--model", str(base), *options, "--output_dir", str(tmp_path / "matcher"))
    results = json.loads((tmp_path / "matcher" / "results.json").read_text())["rows"]
    [ours] = [scores for name, scores in results.items() if name.startswith("base (cdlm)")]
    assert ours["accuracy"] > 0.8
    # The adapter on its base gives the probabilities that were written.
    plain = CdlmForDocumentMatching.from_pretrained(base)
    adapted = PeftModel.from_pretrained(plain, tmp_path / "matcher").eval()
    processor = CdlmProcessor.from_pretrained(tmp_path / "matcher")
    card = (tmp_path / "matcher" / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    code = code.replace('"the base checkpoint"', repr(str(base))).replace('"matcher"', repr(str(tmp_path / "matcher")))
    names: dict = {}
    exec(code, names)
    assert names["probability"].shape == (1,)
    assert str(tmp_path) not in card
    assert "The epoch was chosen on this set, too" in card
    told = {row["id"]: row for row in map(json.loads, (tmp_path / "matcher" / "validation_predictions.jsonl").open())}
    rows = [json.loads(line) for line in Path(files[3]).read_text().splitlines()]
    with torch.no_grad():
        found = adapted(**processor([[row["text1"], row["text2"]] for row in rows])).logits.softmax(dim=-1)[:, 1]
    for number, probability in enumerate(found.tolist()):
        assert told[f"row-{number:06d}"]["probability"] == pytest.approx(probability, abs=2e-5)
