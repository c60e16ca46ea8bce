"""Names of models: which the doors open, and what they say of the others."""

import os
import re
import shutil
import sys

import pytest
import torch
from huggingface_hub import HfApi

from nextlevelbert import (
    BertAlModel,
    CdlmModel,
    ChunkBertModel,
    NextLevelBertModel,
    load_chunk_encoder,
    model_path,
)
from nextlevelbert.command import main
from nextlevelbert.models.model_names import hub_arguments, name_on_hub

from ..toys.vectors import close

DOORS = {
    "load_chunk_encoder": load_chunk_encoder,
    "model_path": model_path,
    "NextLevelBertModel": NextLevelBertModel.from_pretrained,
    "from_chunk_encoder": NextLevelBertModel.from_chunk_encoder,
    "ChunkBertModel": ChunkBertModel.from_encoder,
    "BertAlModel": BertAlModel.from_encoder,
    "CdlmModel": CdlmModel.from_encoder,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_is_not_there(door, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(
        FileNotFoundError, match=r"no folder .*Give the folder of a model"
    ) as caught:
        DOORS[door]("no-such-folder")

    assert "no-such-folder" in str(caught.value)
    assert "connect to the Hub once" in str(caught.value)


@pytest.mark.parametrize("door", sorted(set(DOORS) - {"NextLevelBertModel"}))
def test_a_folder_without_a_model(door, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither config.json nor modules.json"):
        DOORS[door](tmp_path)


def test_minilm_is_a_name_of_token_models_too(minilm_path):
    by_name = ChunkBertModel.from_encoder("minilm")
    by_folder = ChunkBertModel.from_encoder(minilm_path)

    assert model_path("minilm") == minilm_path
    close(
        by_name.get_input_embeddings().weight,
        by_folder.get_input_embeddings().weight,
    )


def test_a_name_without_an_organisation_is_of_sentence_transformers(monkeypatch, tmp_path):
    (tmp_path / "a-folder").mkdir()
    monkeypatch.chdir(tmp_path)
    names = ("all-mpnet-base-v2", "BAAI/bge-m3", "a-folder", "minilm", "nextlevelbert-static")

    on_hub = [name_on_hub(name) for name in names]

    assert on_hub == ["sentence-transformers/all-mpnet-base-v2", *names[1:]]


def test_without_a_connection_only_the_files_of_this_machine_are_looked_for(monkeypatch):
    """Otherwise the client of the Hub tries again for half a minute, for each of eight files."""
    asked = []

    def refuse(self, name, **_):
        asked.append(name)
        raise ConnectionResetError

    monkeypatch.setattr(HfApi, "model_info", refuse)
    assert hub_arguments("nobody/nothing") == {"local_files_only": True}
    assert hub_arguments(".") == {}
    assert asked == ["nobody/nothing"]


COMMANDS = {
    "search": "search example-books whales --model no-such-folder",
    "rerank": "search example-books whales --rerank no-such-folder",
    "app": "app example-books --model no-such-folder",
    "embed": "embed example-books -o vectors.npy --model no-such-folder",
    "fit": "fit example-books -o fitted --model no-such-folder",
    "pretrain": "pretrain --train_file example-books --output_dir made --model no-such-folder",
    "encoder": "pretrain --train_file example-books --output_dir made --chunk_encoder no-such-folder",
    "finetune": "finetune --task multiple_choice --train_file example-books --output_dir made"
    " --model no-such-folder",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_a_model_that_is_not_there_before_they_import_torch(
    command, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "nextlevelbert.public", None)  # what imports torch

    status = main(COMMANDS[command].split())

    said = capsys.readouterr().err
    assert status == 1
    assert "the model 'no-such-folder' cannot be used: there is no folder of that name" in said
    assert "config.json" not in said
    assert "Give the folder of a model" in said


def test_a_model_to_finetune_may_also_be_a_baseline(capsys):
    options = "--task classification --train_file example-books --output_dir made --model tdidf"

    status = main(["finetune", *options.split()])

    assert status == 1
    assert "It may also be untrained, tfidf." in capsys.readouterr().err


@pytest.mark.parametrize("line", ["pretrain", "finetune --task multiple_choice --model minilm"])
def test_a_training_needs_documents(line, capsys):
    with pytest.raises(SystemExit):
        main(line.split())

    assert "Give the documents with --train_file" in capsys.readouterr().err


def test_trainings_need_a_folder_to_write_to(capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", "--train_file", "example-books"])

    said = capsys.readouterr().err
    assert "Give a folder to write the model to with --output_dir" in said
    assert "usage: nextlevelbert pretrain --train_file FILE --output_dir FOLDER [options]" in said


class Code:
    """A pickle of it would run a command."""

    def __reduce__(self):
        return (os.system, ("touch pickle-was-run",))


PICKLED = ["NextLevelBertModel", "load_chunk_encoder", "ChunkBertModel", "BertAlModel", "search"]


@pytest.mark.parametrize("door", PICKLED)
def test_a_pickle_is_refused_in_a_sentence(
    door, toy_checkpoint, toy_encoder_path, tmp_path, monkeypatch, capsys
):
    """PyTorch's message advises to open it with weights_only=False."""
    monkeypatch.chdir(tmp_path)
    source = {"NextLevelBertModel": toy_checkpoint}.get(door, toy_encoder_path)
    folder = shutil.copytree(source, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Code()}, folder / "pytorch_model.bin")
    message = "cannot be loaded safely (corrupt, or a pickle with code). Ask the authors for a"
    (tmp_path / "a.txt").write_text("The whale swims.")

    if door == "search":
        argv = ["search", "a.txt", "whale", "--model", str(folder), "--cache_dir", "cache"]
        status = main(argv)
        assert status == 1
        assert message in capsys.readouterr().err
    else:
        with pytest.raises(ValueError, match=re.escape(message)):
            DOORS[door](folder)
    assert not (tmp_path / "pickle-was-run").exists()
