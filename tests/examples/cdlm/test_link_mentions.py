"""The script that links the mentions of marked texts."""

import torch

from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor

from ...toys.finetuning import run_here
from .scripts import ROOT


def test_mentions_are_linked(encoder, tmp_path, capsys):
    """The groups are those of the probabilities that the model gives to each pair by itself."""
    torch.manual_seed(0)
    model = CdlmForCrossDocumentCoreference.from_encoder(
        encoder, max_length=64, attention_window=16
    )
    CdlmProcessor.from_model(model)
    model.save_pretrained(tmp_path / "linker")
    texts = ["A <m>storm</m> came. It <m>rained</m>.", "The <m>storm</m> passed.", "No mention."]
    files = [tmp_path / f"{index}.txt" for index in range(3)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)

    def lines(threshold):
        run_here(
            "--model",
            str(tmp_path / "linker"),
            "--threshold",
            threshold,
            *map(str, files),
            script=ROOT / "examples" / "cdlm" / "link_mentions.py",
        )
        return capsys.readouterr().out.splitlines()

    assert lines("0.999") == ["'storm' (0.txt)", "'rained' (0.txt)", "'storm' (1.txt)"]
    assert lines("0.001") == ["'storm' (0.txt); 'rained' (0.txt); 'storm' (1.txt)"]
