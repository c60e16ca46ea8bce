"""Objects and settings of the caller stay as they are."""

import os
from unittest import mock

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi
from transformers import BertConfig

from nextlevelbert import BertAlConfig, ChunkBertConfig, NextLevelBertConfig, NextLevelBertModel
from nextlevelbert.evaluation.retrieval import RetrievalTask

TEXT = "The keeper wrote every evening. He noted the wind. He noted the height of the sea. "


def test_a_stock_configuration_keeps_its_name():
    bert = BertConfig(name_or_path="mine", hidden_size=32, num_attention_heads=2)

    configs = [
        NextLevelBertConfig(encoder_config=bert, chunk_encoder_config=bert),
        ChunkBertConfig(encoder_config=bert),
        BertAlConfig(encoder_config=bert),
    ]

    assert bert._name_or_path == "mine"
    assert [config.encoder_config._name_or_path for config in configs] == ["", "", ""]


def test_relevance_grades_may_be_integers_of_numpy():
    task = RetrievalTask("t", {"q": "a"}, {"d": "b"}, {"q": {"d": np.int64(2)}})

    assert task.relevant == {"q": {"d": 2}}
    with pytest.raises(ValueError, match="whole numbers from 1"):
        RetrievalTask("t", {"q": "a"}, {"d": "b"}, {"q": {"d": np.float64(2)}})


def test_another_default_dtype_does_not_change_vectors(toy_checkpoint):
    expected = NextLevelBertModel.from_pretrained(toy_checkpoint).encode(TEXT * 3)

    torch.set_default_dtype(torch.float64)
    try:
        embedding = NextLevelBertModel.from_pretrained(toy_checkpoint).encode(TEXT * 3)
    finally:
        torch.set_default_dtype(torch.float32)

    torch.testing.assert_close(embedding.document, expected.document)
    torch.testing.assert_close(embedding.plain, expected.plain)


def test_a_save_with_push_uploads_the_files_that_were_saved(toy_checkpoint, tmp_path):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    folder = tmp_path / "reader"
    repository = mock.Mock(repo_id="me/reader")
    with (
        mock.patch.object(HfApi, "create_repo", return_value=repository),
        mock.patch.object(HfApi, "create_branch"),
        mock.patch.object(HfApi, "create_commit") as commit,
    ):
        model.save_pretrained(
            folder,
            push_to_hub=True,
            revision="dev",
            commit_message="new",
            token="hf_argument",
            variant="fp16",
            max_shard_size="20KB",
        )

    call = commit.call_args.kwargs
    uploaded = {operation.path_in_repo for operation in call["operations"]}
    assert uploaded == set(os.listdir(folder))
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert (call["repo_id"], call["revision"]) == ("me/reader", "dev")
    assert (call["commit_message"], call["token"]) == ("new", "hf_argument")
    assert "me/reader" in (folder / "README.md").read_text(encoding="utf-8")
