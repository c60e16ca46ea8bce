"""Names of models: which the doors open, and what they say of the others."""

import pytest
from huggingface_hub import HfApi

import nextlevelbert_command
from nextlevelbert import (
    BertAlModel,
    CdlmModel,
    ChunkBertModel,
    NextLevelBertModel,
    load_chunk_encoder,
    model_path,
)
from nextlevelbert.models.model_names import hub_arguments

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


@pytest.mark.parametrize("option", ["--chunk_encoder", "--model"])
def test_pretraining_refuses_a_model_that_is_not_there_before_it_imports_torch(option, capsys):
    options = ["--train_file", "example-books", "--output_dir", "made", option, "no-such-folder"]

    status = nextlevelbert_command.main(["pretrain", *options])

    assert status == 1
    assert "the model 'no-such-folder' cannot be used" in capsys.readouterr().err


def test_pretraining_needs_documents(capsys):
    with pytest.raises(SystemExit):
        nextlevelbert_command.main(["pretrain"])

    assert "Give the documents with --train_file" in capsys.readouterr().err
