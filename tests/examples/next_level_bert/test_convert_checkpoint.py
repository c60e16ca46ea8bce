"""The authors' checkpoints in our form, and a refusal for all that is amiss.

That they give the authors' numbers after saving is tested in `tests/reference`.
"""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, BertConfig

from nextlevelbert import NextLevelBertForMaskedVectorModeling
from nextlevelbert.models.chunk_encoder import ChunkEncoder, LoadedChunkEncoder

from ...reference import test_authors_inference as inference
from ...reference import test_authors_pretraining_step as pretraining_step
from ..scripts import EXAMPLES, load_script

script = load_script("next_level_bert/convert_checkpoint.py")
convert_checkpoint = script.convert_checkpoint

# The fixtures of both tests.
tiny = inference.tiny
encoders = inference.encoders
step = pretraining_step.step

LAYER = "bert.encoder.layer.0."
FROZEN = "encoder.0.auto_model."


def write(folder, config, weights):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        folder / "model.safetensors",
    )
    return folder


@pytest.fixture
def config(tiny):
    return json.loads((tiny / "checkpoint" / "config.json").read_text())


@pytest.fixture
def weights(tiny):
    return load_file(tiny / "checkpoint" / "model.safetensors")


def widened(name, tensor):
    """A tensor of the step at hidden size 32 as one at 384 = 12 x 32: every vector is repeated
    twelve times.

    A layer that reads twelve copies has its weights divided by twelve, there are twelve times as
    many heads, LayerNorm and the means over the components see the same values: all results are
    copies, losses are equal.
    """
    if (
        name.endswith("weight")
        and name.startswith("weights.")
        and tensor.ndim == 2
        and "embeddings" not in name
    ):
        rows, columns = (12 if size == 32 else 1 for size in tensor.shape)
        return tensor.tile(rows, columns) / columns
    if tensor.is_floating_point() and tensor.ndim and tensor.shape[-1] == 32:
        tensor = tensor.tile(12)
    return tensor / 12 if name.startswith("grad.") else tensor


@pytest.fixture
def pretraining(step, minilm, tmp_path):
    """The pretraining step at the hidden size that the authors' head is made for, its checkpoint,
    and an encoder."""
    step = {name: widened(name, tensor) for name, tensor in step.items()}
    size = {
        "hidden_size": 384,
        "num_attention_heads": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
    }
    described = {**size, "vocab_size": 1_000}
    encoder = ChunkEncoder(BertConfig(**described))
    config = {"_encoder_name": "user/wide", "encoder_config": described, "chunk_size": 16}
    weights = {
        name.removeprefix("weights."): step[name] for name in step if name.startswith("weights.")
    }
    folder = write(tmp_path / "pretraining", config, weights)
    return (
        step,
        folder,
        LoadedChunkEncoder(encoder, minilm.tokenizer, "user/wide", encoder.fingerprint()),
    )


def test_pretraining_checkpoint_has_its_head(pretraining, tmp_path):
    step, folder, encoder = pretraining
    model = convert_checkpoint(folder, encoder)

    assert type(model) is NextLevelBertForMaskedVectorModeling
    assert not model.training

    model.save_pretrained(tmp_path / "ours")
    reloaded = AutoModelForPreTraining.from_pretrained(tmp_path / "ours")

    assert (
        reloaded.config.max_chunks == 22
    )  # their position table has 24 rows, the sentence encoder's 512

    for opened in (model, reloaded):
        pretraining_step.test_step_of_the_original_scheme(step, opened)
        pretraining_step.test_their_all_mask_scheme_adds_the_mask_vector_to_the_target(step, opened)


def test_older_and_newer_spellings(tiny, encoders, config, weights, tmp_path):
    """Buffers that older versions of transformers saved, and another name for the sentence
    encoder's module."""
    spelled = {name.replace(FROZEN, "encoder.0.model."): tensor for name, tensor in weights.items()}
    for prefix in ("bert.", "encoder.0.model."):
        spelled[prefix + "embeddings.position_ids"] = torch.arange(512)[None]
    respelled = convert_checkpoint(write(tmp_path / "spelled", config, spelled), encoders[True])
    plain = convert_checkpoint(tiny / "checkpoint", encoders[True])
    inference.close(dict(respelled.state_dict()), dict(plain.state_dict()))


# Where things are found.


def test_encoder_is_the_one_that_the_configuration_names(tiny, config, weights, tmp_path):
    named = write(tmp_path / "named", {**config, "_encoder_name": str(tiny / "encoder")}, weights)
    model = convert_checkpoint(named)

    assert model.config.chunk_encoder_name == "encoder"  # no path of this machine
    assert model.config.chunk_size == 16

    with pytest.raises(FileNotFoundError, match="sentence-transformers/tiny-random-minilm"):
        convert_checkpoint(tiny / "checkpoint")
    stand_in = convert_checkpoint(tiny / "checkpoint", tiny / "encoder", chunk_size=64)

    assert stand_in.config.chunk_encoder_name == "sentence-transformers/tiny-random-minilm"
    assert stand_in.config.chunk_size == 64


CONVERT_FROM_THE_HUB = """
import json, sys
folder, examples = sys.argv[1:]
sys.path.insert(0, examples)
from convert_checkpoint import main
for output, *revision in (["main"], ["request", "--revision", "refs/pr/1"], ["none", "--revision", "refs/pr/2"]):
    try:
        main(["user/theirs", f"{folder}/{output}", *revision])
    except OSError as error:
        print(json.dumps(str(error)))
"""


def test_checkpoints_on_the_hub(hub, fresh_process, tiny, config, weights, tmp_path):
    """As the authors have them: a pickle on main, and a pull request that adds safetensors (here:
    other numbers)."""
    other = {**weights, "special_vec_embeddings.weight": torch.ones(4, 32)}
    torch.save(weights, tmp_path / "pytorch_model.bin")
    save_file(other, tmp_path / "model.safetensors")
    files = {"config.json": json.dumps({**config, "_encoder_name": str(tiny / "encoder")}).encode()}
    files["pytorch_model.bin"] = (tmp_path / "pytorch_model.bin").read_bytes()
    hub.put("user/theirs", {**files, "README.md": b"Theirs."})
    files["model.safetensors"] = (tmp_path / "model.safetensors").read_bytes()
    hub.put("user/theirs", files, "refs/pr/1")
    printed = fresh_process(CONVERT_FROM_THE_HUB, tmp_path, EXAMPLES / "next_level_bert")
    error = json.loads(printed.splitlines()[-1])

    assert "refs/pr/2 is not a valid git identifier" in error

    for output, state in (("main", weights), ("request", other)):
        table = AutoModel.from_pretrained(tmp_path / output).special_embeddings.weight
        assert torch.equal(table, state["special_vec_embeddings.weight"])
    folders = fresh_process.folder.glob("hub/models--user--theirs/snapshots/*")
    downloaded = sorted(sorted(os.listdir(folder)) for folder in folders)

    assert downloaded == [
        ["config.json", "model.safetensors"],
        ["config.json", "pytorch_model.bin"],
    ]


def test_command(tiny, tmp_path, capsys):
    """The saved folder holds no path of this machine."""
    output = tmp_path / "model"
    argv = [str(tiny / "checkpoint"), str(output), "--chunk_size", "64"]
    argv += ["--chunk_encoder", str(tiny / "encoder")]
    script.main(argv)

    assert f"Wrote {output}: NextLevelBertModel" in capsys.readouterr().out

    config = AutoConfig.from_pretrained(output)

    assert (config.chunk_size, config.long_documents) == (64, "window")

    for path in output.iterdir():
        assert str(tiny).encode() not in path.read_bytes(), path
    with pytest.raises(SystemExit):  # the folder holds files now
        script.main(argv)

    assert "exists already" in capsys.readouterr().err


def test_a_checkpoint_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(FileNotFoundError, match=r"'someone/nothing' cannot be used.*the Hub"):
        convert_checkpoint("someone/nothing")


# What is refused.


def refused(message, folder, *args, error=ValueError):
    with pytest.raises(error, match=message):
        convert_checkpoint(folder, *args)


def test_tensors_that_do_not_fit(encoders, config, weights, tmp_path):
    """Unknown, missing, of another shape, of another encoder: the first of each is named."""
    layer = f"{LAYER}output.dense.bias"
    vectors = "special_vec_embeddings.weight"
    swapped = dict(weights)
    missing = dict(weights)
    del missing[layer]
    for name in weights:
        if name.startswith("bert."):
            frozen = name.replace("bert.", FROZEN, 1)
            swapped[name] = weights[frozen]
            swapped[frozen] = weights[name]
    cases = {
        "unknown": ("bert.pooler.strange", {**weights, "bert.pooler.strange": torch.zeros(1)}),
        "two spellings": (
            FROZEN,
            {**weights, "encoder.0.model.pooler.dense.bias": torch.zeros(32)},
        ),
        "missing": (layer, missing),
        "shape": (rf"{vectors} \(5, 32\)", {**weights, vectors: torch.zeros(5, 32)}),
        "places": ("differs from that of", swapped),  # all shapes are the same
        "other": (
            "differs from that of",
            {**weights, FROZEN + "embeddings.LayerNorm.bias": torch.ones(32)},
        ),
    }
    for name, (culprit, tensors) in cases.items():
        refused(culprit, write(tmp_path / name, config, tensors), encoders[True])


@pytest.mark.parametrize("heads", [8, 12])
def test_encoder_of_another_architecture(encoders, config, weights, tmp_path, heads):
    """The number of heads shows in no shape; where it is left out, it is BERT's 12."""
    config["encoder_config"]["num_attention_heads"] = heads
    if heads == 12:
        del config["encoder_config"]["num_attention_heads"]
    refused("num_attention_heads", write(tmp_path / "other", config, weights), encoders[True])


class Hostile:
    """Python's own unpickler would make a file when it opens this."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("zipped", [True, False])
def test_hostile_pickle(encoders, config, weights, tmp_path, zipped):
    trace = tmp_path / "trace"
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    content = {**weights, "special_vec_embeddings.weight": Hostile(trace)}
    torch.save(content, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match="safetensors") as refusal:
        convert_checkpoint(folder, encoders[True])

    assert "weights_only" not in str(refusal.value)
    assert (
        refusal.value.__suppress_context__
    )  # the traceback would show PyTorch's advice to open it all the same
    assert not trace.exists()

    torch.load(folder / "pytorch_model.bin", weights_only=False)

    assert trace.exists()  # it is what it is said to be


def test_files_that_are_missing_or_damaged(tiny, encoders, config, weights, tmp_path):
    folder = write(tmp_path / "theirs", config, weights)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1")
    refused("pytorch_model.bin", folder, encoders[True])
    (folder / "config.json").write_text(json.dumps({"hidden_size": 32}))
    refused("lacks .*_encoder_name", folder, encoders[True])
    (folder / "config.json").unlink()
    refused("config.json", folder, encoders[True], error=FileNotFoundError)
