"""A checkpoint carries all that it needs: it opens, computes the same and is saved again without the package.

And it is a SentenceTransformer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import AutoProcessor, AutoTokenizer

from nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from nextlevelbert.models.chunking import tokenize_document

from ..conftest import toy_config
from ..golden.inputs import CLASSES, FOLDER
from ..golden.outputs import outputs_of

FAMILIES = ("nextlevelbert", "hate", "chunkbert", "bert-al", "cdlm")

# A user who has transformers, and neither this package nor sentence-transformers.
ELSEWHERE = """
import json, sys
from pathlib import Path

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("nextlevelbert", "sentence_transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Hidden())
saved, again, golden, families = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
sys.path.append(golden)
import transformers
from outputs import outputs_of
from safetensors.torch import save_file
from transformers.dynamic_module_utils import get_class_from_dynamic_module

opened = {}
for folder in sorted(saved.iterdir()):
    config = json.loads((folder / "config.json").read_text())
    autos = {auto: name for auto, name in config["auto_map"].items() if auto != "AutoConfig"}
    module = autos["AutoModel"].split(".")[0]
    name = f"{module}.{config['architectures'][0]}"
    if name in autos.values():
        auto = next(auto for auto in autos if autos[auto] == name)
        model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True)
    else:  # as the docstring of such a class says
        model = get_class_from_dynamic_module(name, str(folder)).from_pretrained(folder)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    opened[folder.name] = [type(model).__name__]
    model.save_pretrained(again / folder.name)  # first: the tokenizer would save how it was called last
    if (folder / "processor_config.json").exists():
        processor = transformers.AutoProcessor.from_pretrained(folder, trust_remote_code=True)
        processor.save_pretrained(again / folder.name)
    found = {key: values.contiguous() for key, values in outputs_of(folder.name, model).items()}
    save_file(found, again / folder.name / "outputs")
    if folder.name in families:
        assert transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True).is_fast
        for auto, name in autos.items():
            other = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True)
            assert type(other).__name__ == name.split(".")[1]
            opened[folder.name].append(auto)
assert "nextlevelbert" not in sys.modules
print(json.dumps(opened))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint of each class as this package saves it, and as a process without the package saves it again."""
    saved, again = tmp_path_factory.mktemp("saved"), tmp_path_factory.mktemp("again")
    for name, cls in CLASSES.items():
        cls.from_pretrained(FOLDER / name).save_pretrained(saved / name)
        if (FOLDER / name / "processor_config.json").exists():
            AutoProcessor.from_pretrained(FOLDER / name).save_pretrained(saved / name)
    home = tmp_path_factory.mktemp("home")
    process = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", ELSEWHERE, str(saved), str(again), str(FOLDER), *FAMILIES],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
        cwd=home, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return saved, again, json.loads(process.stdout.splitlines()[-1])


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def code(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.py")}


@pytest.mark.parametrize("name", CLASSES)
def test_it_opens_elsewhere_and_computes_the_same(folders, name):
    saved, again, opened = folders
    assert opened[name][0] == CLASSES[name].__name__
    found = load_file(again / name / "outputs")
    expected = outputs_of(name, CLASSES[name].from_pretrained(saved / name))
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        torch.testing.assert_close(found[key], values, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("nextlevelbert", []),
        ("nextlevelbert-masked", ["head"]),
        ("nextlevelbert-choice", ["classifier"]),
        ("hate-masked", ["head"]),
        ("chunkbert-classification", ["classifier"]),
        ("bert-al", ["lstm", "residual"]),
        ("bert-al-summarization", ["classifier", "lstm", "residual"]),
        ("cdlm-coreference", ["scorer"]),
        ("cdlm-questions", ["qa_outputs", "qa_type", "qa_sentence", "qa_paragraph"]),
    ],
)
def test_what_is_trained_whole_beside_an_adapter(name, modules):
    """What starts at random has no weights that low-rank matrices could be added to."""
    model = CLASSES[name].from_pretrained(FOLDER / name)
    assert model.modules_to_train_whole() == modules


TEXTS = ["Call me Ishmael. " * 200, "It was the best of times.", "", "All happy families are alike. " * 20]


@pytest.fixture(scope="module")
def folder(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    config = {**minilm.encoder.model.config.to_dict(), "max_position_embeddings": 22}
    model = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(minilm, chunk_size=32, encoder_config=config)
    model.save_pretrained(folder)
    return folder


def test_encode_gives_the_models_own_document_vectors(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", message="Document.*contain no token")
        sentence_transformer = SentenceTransformer(str(folder), device="cpu")
        vectors = sentence_transformer.encode(TEXTS, batch_size=2)
        embeddings = NextLevelBertModel.from_pretrained(folder).encode(TEXTS)
    assert len(embeddings[0].chunks) > 20  # longer than a window
    expected = np.stack([embedding.document.numpy() for embedding in embeddings])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert sentence_transformer.get_embedding_dimension() == 384
    assert [type(module).__name__ for module in sentence_transformer] == ["Transformer"]


def test_the_limit_that_it_names_is_none_that_a_document_reaches(folder):
    """sentence-transformers shows what transformers keeps, and that has a number for "no limit"."""
    model = SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == np.iinfo(tokenize_document(model.tokenizer, "sea").char_ends.dtype).max
    unlimited = AutoTokenizer.from_pretrained(folder, model_max_length=None)
    assert unlimited.model_max_length == int(1e30)  # if it were None, None could be saved


def test_saving_it_again_changes_nothing(folder, tmp_path):
    original = SentenceTransformer(str(folder), device="cpu")
    original.save_pretrained(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS[1:2]), original.encode(TEXTS[1:2]))


def test_the_trainer_of_sentence_transformers(folder, tmp_path):
    model = SentenceTransformer(str(folder), device="cpu")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    pairs = Dataset.from_dict({"anchor": TEXTS[:2] + TEXTS[3:], "positive": ["sea", "times", "family"]})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=3, learning_rate=1e-3, use_cpu=True,
        save_strategy="no", dataloader_pin_memory=False, disable_tqdm=True,
    )  # fmt: skip
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
    ).train()
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert not any("chunk_encoder" in name for name in changed)
    assert sum(".encoder.layer." in name for name in changed) == 6 * 16  # every weight of all six layers


def test_what_the_folder_holds(folder):
    config = (folder / "config.json").read_text()
    tasks = {"AutoModelForPreTraining", "AutoModelForSequenceClassification", "AutoModelForMultipleChoice"}
    assert set(json.loads(config)["auto_map"]) == {"AutoConfig", "AutoModel"} | tasks
    assert str(folder) not in config
    assert {file.name for file in folder.iterdir()} >= {"modules.json", "tokenizer.json", "modeling_nextlevelbert.py"}


def test_peft_adapts_attention_and_leaves_the_chunk_encoder_alone():
    from peft import LoraConfig, get_peft_model

    for made in (NextLevelBertForSequenceClassification, NextLevelBertModel):
        adapted = get_peft_model(made(toy_config()), LoraConfig(r=2, **made(toy_config()).lora_targets()))
        trained = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
        assert sum("lora_A" in name for name in trained) == 4  # query and value of two layers
        assert not any("chunk_encoder" in name for name in trained)
        assert any("classifier" in name for name in trained) == (made is NextLevelBertForSequenceClassification)


def test_a_model_without_attention_has_nothing_to_adapt():
    layers = {**toy_config().encoder_config.to_dict(), "num_hidden_layers": 0}
    with pytest.raises(ValueError, match="no linear layer named"):
        NextLevelBertModel(toy_config(encoder_config=layers)).lora_targets()
