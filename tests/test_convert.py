"""The authors' checkpoints in our form: their numbers after saving, and a refusal for all that is amiss."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForPreTraining, BertConfig

from nextlevelbert import NextLevelBertForMaskedVectorModeling, NextLevelBertModel
from nextlevelbert.convert import convert_checkpoint, main
from nextlevelbert.encoders import LoadedChunkEncoder
from nextlevelbert.models.chunk_encoder import ChunkEncoder
from nextlevelbert.models.configuration_nextlevelbert import PAD

from .hub_server import HubServer
from .reference import test_authors_inference as inference
from .reference import test_authors_pretraining_step as pretraining_step

tiny, encoders, step = inference.tiny, inference.encoders, pretraining_step.step  # fixtures

LAYER = "bert.encoder.layer.0."
FROZEN = "encoder.0.auto_model."


def write(folder: Path, config: dict, weights: dict) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    return folder


@pytest.fixture
def config(tiny):
    return json.loads((tiny / "checkpoint" / "config.json").read_text())


@pytest.fixture
def weights(tiny):
    return load_file(tiny / "checkpoint" / "model.safetensors")


def write_pickle(folder: Path, config: dict, held: object, **how) -> Path:
    """A folder as on the Hub: its weights as `torch.save` writes them."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(held, folder / "pytorch_model.bin", **how)
    return folder


# The authors' numbers: the tests of `tests/reference` again, on models that were saved and opened.


@pytest.fixture(params=["safetensors", "pickle"])
def reloaded(request, tiny, monkeypatch, tmp_path):
    """Conversion from either form of the weights, followed by saving and opening."""
    convert, theirs = inference.authors_model, tiny
    if request.param == "pickle":
        theirs = tmp_path / "theirs"
        shutil.copytree(tiny / "checkpoint", theirs / "checkpoint")
        weights = theirs / "checkpoint" / "model.safetensors"
        torch.save(load_file(weights), theirs / "checkpoint" / "pytorch_model.bin")
        weights.unlink()

    def saved(source, tiny, chunk_size, **config):
        convert(source, theirs, chunk_size, **config).save_pretrained(tmp_path)
        return AutoModel.from_pretrained(tmp_path)

    monkeypatch.setattr(inference, "authors_model", saved)


@pytest.mark.usefixtures("reloaded")
@pytest.mark.parametrize(("file", "chunk_size", "texts", "normalize"), inference.CASES)
def test_documents_after_saving(tiny, encoders, file, chunk_size, texts, normalize):
    inference.test_documents_as_the_authors_encode_them(tiny, encoders, file, chunk_size, texts, normalize)


@pytest.mark.usefixtures("reloaded")
@pytest.mark.parametrize("chunk_size", [16, 64])
def test_special_positions_after_saving(tiny, encoders, chunk_size):
    inference.test_the_special_positions_too(tiny, encoders, chunk_size)


@pytest.mark.usefixtures("reloaded")
def test_sentences_after_saving(tiny, encoders, monkeypatch):
    """Chunk size 0 is sentence mode, and a sentence has as many tokens as the encoder reads (256)."""
    models = []
    saved = inference.authors_model

    def in_sentences(source, tiny, chunk_size, **config):
        models.append(saved(source, tiny, 0, **config))
        return models[-1]

    monkeypatch.setattr(inference, "authors_model", in_sentences)
    inference.test_sentences_given_as_chunks(tiny, encoders)
    [model] = models
    assert (model.config.chunking, model.config.chunk_size) == ("sentences", 256)
    assert model.plan("The ship sailed. Nobody waved. It was cold.").chunks == 3


@pytest.mark.usefixtures("reloaded")
def test_windows_after_saving(tiny, encoders):
    inference.test_windows_agree_with_the_authors_up_to_their_limit(tiny, encoders)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("attention.self.query.weight", "attention.self.key.weight"),
        ("attention.self.value.weight", "attention.output.dense.weight"),
        ("attention.output.LayerNorm.weight", "output.LayerNorm.weight"),
        ("attention.output.LayerNorm.bias", "output.LayerNorm.bias"),
    ],
)
def test_two_swapped_tensors_are_noticed(tiny, encoders, config, weights, tmp_path, monkeypatch, one, other):
    """What a name table with a fault would do: the comparison above is sharp enough for it."""
    weights[LAYER + one], weights[LAYER + other] = weights[LAYER + other], weights[LAYER + one]
    folder = write(tmp_path / "swapped", config, weights)
    monkeypatch.setattr(
        inference, "authors_model", lambda source, tiny, size: convert_checkpoint(folder, source, size)
    )
    with pytest.raises(AssertionError, match="not close"):
        inference.test_the_special_positions_too(tiny, encoders, 16)


def widened(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the step at hidden size 32 as one at 384 = 12 x 32: every vector is repeated twelve times.

    A layer that reads twelve copies has its weights divided by twelve, there are twelve times as many heads,
    LayerNorm and the means over the components see the same values: all results are copies, losses are equal.
    """
    if name.endswith("weight") and name.startswith("weights.") and tensor.ndim == 2 and "embeddings" not in name:
        rows, columns = (12 if size == 32 else 1 for size in tensor.shape)
        return tensor.tile(rows, columns) / columns
    if tensor.is_floating_point() and tensor.ndim and tensor.shape[-1] == 32:
        tensor = tensor.tile(12)
    return tensor / 12 if name.startswith("grad.") else tensor


@pytest.fixture
def pretraining(step, minilm, tmp_path):
    """The pretraining step at the hidden size that the authors' head is made for, its checkpoint, and an encoder."""
    step = {name: widened(name, tensor) for name, tensor in step.items()}
    size = {"hidden_size": 384, "num_attention_heads": 48, "intermediate_size": 64, "num_hidden_layers": 2}
    described = {**size, "vocab_size": 1_000}
    encoder = ChunkEncoder(BertConfig(**described))
    config = {"_encoder_name": "user/wide", "encoder_config": described, "chunk_size": 16}
    weights = {name.removeprefix("weights."): step[name] for name in step if name.startswith("weights.")}
    folder = write(tmp_path / "pretraining", config, weights)
    return step, folder, LoadedChunkEncoder(encoder, minilm.tokenizer, "user/wide", encoder.fingerprint())


def test_pretraining_checkpoint_has_its_head(pretraining, tmp_path, caplog):
    step, folder, encoder = pretraining
    model = convert_checkpoint(folder, encoder)
    assert "nothing confirms that its vectors came from 'user/wide'" in caplog.text
    assert type(model) is NextLevelBertForMaskedVectorModeling
    assert not model.training
    model.save_pretrained(tmp_path / "ours")
    reloaded = AutoModelForPreTraining.from_pretrained(tmp_path / "ours")
    assert reloaded.config.max_chunks == 22  # their position table has 24 rows, the sentence encoder's 512
    for each in (model, reloaded):
        pretraining_step.test_step_of_the_original_scheme(step, each)
        pretraining_step.test_their_all_mask_scheme_adds_the_mask_vector_to_the_target(step, each)


def test_head_that_does_not_fit(step, config, encoders, tmp_path):
    """Their head is 384 wide whatever the hidden size, ours as wide as that; beside 32 there is no place for it."""
    weights = {name.removeprefix("weights."): step[name] for name in step if name.startswith("weights.")}
    folder = write(tmp_path / "narrow", config, weights)
    with pytest.raises(
        ValueError, match=r"3 tensor.*cls\.cls\.0\.bias \(384,\) \(here: \(32,\)\), cls\.cls\.0\.weight"
    ):
        convert_checkpoint(folder, encoders[True])


class Settings:
    """In the place of the two dataclasses of their training code, whose instances are in every `.ckpt` of theirs."""

    def __init__(self, **values):
        vars(self).update(values)


@pytest.fixture
def their_modules(monkeypatch):
    """Classes that pickle by the names of their training code, which is gone once the test is over."""
    named = {}
    for module, name in (("arguments", "TrainingArgs"), ("src.model", "ModelArgs"), ("arguments", "Unknown")):
        for each in {module, module.split(".")[0]} - sys.modules.keys():
            monkeypatch.setitem(sys.modules, each, types.ModuleType(each))
        named[name] = type(name, (Settings,), {"__module__": module})
        setattr(sys.modules[module], name, named[name])
    return named


def lightning(weights: dict, training_args: object, adhoc_args: object) -> dict:
    """What Lightning saves: the state dict among the state of the run."""
    return {
        "epoch": 19,
        "global_step": 1_000,
        "pytorch-lightning_version": "2.2.5",
        "state_dict": weights,
        "callbacks": {
            "ModelCheckpoint{'monitor': 'val/loss'}": {"best_model_score": torch.tensor(0.5), "dirpath": "x"}
        },
        "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1e-4}]}],
        "hparams_name": "kwargs",
        "hyper_parameters": {"training_args": training_args, "adhoc_args": adhoc_args, "dropout": 0.1},
    }


@pytest.mark.parametrize("wrapper", ["", "_orig_mod."])
def test_pretraining_checkpoint_of_lightning(pretraining, their_modules, tmp_path, monkeypatch, wrapper):
    """A `.ckpt` by itself: the encoder and the chunk size come from the caller, the numbers are those of the step."""
    step, folder, encoder = pretraining
    weights = {wrapper + name: tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    settings = their_modules["TrainingArgs"](encoder_name="all-MiniLM-L6-v2", chunking=16, effective_batch_size=None)
    (tmp_path / "run").mkdir()
    torch.save(lightning(weights, settings, their_modules["ModelArgs"]()), tmp_path / "run" / "last.ckpt")
    monkeypatch.undo()  # their classes are nowhere to be found when it is opened
    assert "arguments" not in sys.modules
    message = "no config.json next to .*last.ckpt', so give chunk_encoder and chunk_size"
    refused(message, tmp_path / "run" / "last.ckpt", encoder, error=FileNotFoundError)
    model = convert_checkpoint(tmp_path / "run" / "last.ckpt", encoder, 16)
    assert type(model) is NextLevelBertForMaskedVectorModeling
    assert (model.config.chunk_size, model.config.chunk_encoder_name) == (16, "user/wide")
    pretraining_step.test_step_of_the_original_scheme(step, model)


def test_checkpoint_of_lightning_with_other_objects(pretraining, their_modules, tmp_path):
    _, folder, encoder = pretraining
    held = lightning(load_file(folder / "model.safetensors"), their_modules["Unknown"](), None)
    torch.save(held, tmp_path / "last.ckpt")
    refused("would call arguments.Unknown, and only tensors are read", tmp_path / "last.ckpt", encoder, 16)


def test_wrapper_around_a_part_of_the_tensors_only(encoders, config, weights, tmp_path):
    """Two tensors of one name, once unwrapped, must not become one in silence."""
    wrapped = {f"model.{name}": tensor for name, tensor in weights.items()}
    folder = write(tmp_path / "part", config, {**wrapped, "special_vec_embeddings.bias": torch.zeros(4)})
    refused(r"has \d+ tensor\(s\) that are unknown here: model\.bert", folder, encoders[True])


def test_row_of_padding_is_kept_and_has_no_say(tiny, encoders, weights, tmp_path):
    table = weights["special_vec_embeddings.weight"]
    assert table[PAD].any()
    convert_checkpoint(tiny / "checkpoint", encoders[True]).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(model.special_embeddings.weight, table)
    vectors = torch.nn.functional.normalize(torch.randn(2, 5, 32), dim=-1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    packed = torch.tensor([[1, -1, -1, -1, 2], [1, -1, 2, 0, 0]])

    @torch.no_grad()
    def results():
        by_mask = model(inputs_embeds=vectors, attention_mask=mask)
        by_ids = model(inputs_embeds=vectors, special_ids=packed)
        return by_mask.last_hidden_state, by_mask.pooler_output, by_ids.last_hidden_state[packed != PAD]

    before = results()
    with torch.no_grad():
        model.special_embeddings.weight[PAD] = 1e3 * torch.randn(32)
    for row_changed, row_kept in zip(results(), before, strict=True):
        assert torch.equal(row_changed, row_kept)


def test_older_and_newer_spellings(tiny, encoders, config, weights, tmp_path):
    """Buffers that older versions of transformers saved, and another name for the sentence encoder's module."""
    spelled = {name.replace(FROZEN, "encoder.0.model."): tensor for name, tensor in weights.items()}
    for prefix in ("bert.", "encoder.0.model."):
        spelled[prefix + "embeddings.position_ids"] = torch.arange(512)[None]
    theirs = convert_checkpoint(write(tmp_path / "spelled", config, spelled), encoders[True]).state_dict()
    plain = convert_checkpoint(tiny / "checkpoint", encoders[True]).state_dict()
    assert theirs.keys() == plain.keys()
    assert all(torch.equal(theirs[name], plain[name]) for name in plain)


# Where things are found.


def test_encoder_is_the_one_that_the_configuration_names(tiny, config, weights, tmp_path):
    named = write(tmp_path / "named", {**config, "_encoder_name": str(tiny / "encoder")}, weights)
    model = convert_checkpoint(named)
    assert model.config.chunk_encoder_name == "encoder"  # no path of this machine
    assert model.config.chunk_size == 16
    with pytest.raises(ValueError, match="sentence-transformers/tiny-random-minilm"):
        convert_checkpoint(tiny / "checkpoint")
    stand_in = convert_checkpoint(tiny / "checkpoint", tiny / "encoder", chunk_size=64)
    assert stand_in.config.chunk_encoder_name == "sentence-transformers/tiny-random-minilm"
    assert stand_in.config.chunk_size == 64


def test_checkpoint_from_the_hub(tiny, encoders, tmp_path, monkeypatch):
    """By the Hub's own client, out of its cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--user--theirs"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "snapshots" / ("a" * 40)).symlink_to(tiny / "checkpoint")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    assert type(convert_checkpoint("user/theirs", encoders[True])) is NextLevelBertModel
    with pytest.raises(FileNotFoundError, match="no checkpoint 'user/others'"):
        convert_checkpoint("user/others", encoders[True])


CONVERT_FROM_THE_HUB = """
import json, sys
from nextlevelbert.convert import main
folder = sys.argv[1]
for output, *revision in (["main"], ["request", "--revision", "refs/pr/1"], ["none", "--revision", "refs/pr/2"]):
    sys.argv = ["convert", "user/theirs", f"{folder}/{output}", *revision]
    try:
        main()
    except SystemExit as error:
        print(json.dumps(str(error)))
"""


def test_checkpoints_on_the_hub(tiny, config, weights, tmp_path):
    """As the authors have them: a pickle on main, and a pull request that adds safetensors (here: other numbers)."""
    torch.save(weights, tmp_path / "pytorch_model.bin")
    save_file({**weights, "special_vec_embeddings.weight": torch.ones(4, 32)}, tmp_path / "model.safetensors")
    described = json.dumps({**config, "_encoder_name": str(tiny / "encoder")}).encode()
    pickled = {"config.json": described, "pytorch_model.bin": (tmp_path / "pytorch_model.bin").read_bytes()}
    both = {**pickled, "model.safetensors": (tmp_path / "model.safetensors").read_bytes()}
    with HubServer() as hub:
        hub.put("user/theirs", {**pickled, "README.md": b"Theirs."})
        hub.put("user/theirs", both, "refs/pr/1")
        done = subprocess.run(
            [sys.executable, "-c", CONVERT_FROM_THE_HUB, str(tmp_path)],
            cwd=Path(__file__).parents[1],
            env=hub.environment(tmp_path / "home"),
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).startswith(
        "error: Found no checkpoint 'user/theirs' of revision 'refs/pr/2': no such"
    )
    for output, vectors in (("main", weights["special_vec_embeddings.weight"]), ("request", torch.ones(4, 32))):
        assert torch.equal(AutoModel.from_pretrained(tmp_path / output).special_embeddings.weight, vectors)
    folders = (tmp_path / "home").glob("hub/models--user--theirs/snapshots/*")
    downloaded = {tuple(sorted(file.name for file in folder.iterdir())) for folder in folders}
    assert downloaded == {("config.json", "pytorch_model.bin"), ("config.json", "model.safetensors")}


def test_revision_of_a_folder(tiny, encoders):
    with pytest.raises(ValueError, match=r"checkpoint' is on this machine and has no revision 'refs/pr/1'"):
        convert_checkpoint(tiny / "checkpoint", encoders[True], revision="refs/pr/1")


def test_safetensors_before_pickle(encoders, config, weights, tmp_path):
    folder = write(tmp_path / "both", config, weights)
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    assert type(convert_checkpoint(folder, encoders[True])) is NextLevelBertModel


def test_command(tiny, tmp_path, monkeypatch, caplog):
    """The saved folder opens everywhere and gives the authors' numbers."""
    output = tmp_path / "model"
    arguments = [str(tiny / "checkpoint"), str(output), "--chunk_encoder", str(tiny / "encoder"), "--chunk_size", "64"]
    monkeypatch.setattr(sys, "argv", ["convert", *arguments])
    main()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert any("more than 510 chunks" in line and 'long_documents to "truncate"' in line for line in told)
    texts = json.loads((tiny / "texts.json").read_text())["texts"]
    expected = load_file(tiny / "expected_chunk64.safetensors")["document_embeddings"]
    model = AutoModel.from_pretrained(output)
    assert model.config.long_documents == "window"
    inference.close(torch.stack([embedding.document for embedding in model.encode(texts)]), expected)
    inference.close(torch.from_numpy(SentenceTransformer(str(output), device="cpu").encode(texts)), expected)
    holders = [path.name for path in output.iterdir() if str(tiny).encode() in path.read_bytes()]
    assert holders == []


def test_command_does_not_overwrite_its_source(tiny, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["convert", str(tiny / "checkpoint"), str(tiny / "encoder" / ".." / "checkpoint")]
    )
    with pytest.raises(SystemExit):
        main()
    assert "output is the source itself" in capsys.readouterr().err


def test_command_says_in_a_line_what_it_refuses(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", ["convert", str(tmp_path / "empty"), str(tmp_path / "ours")])
    with pytest.raises(SystemExit, match=r"^error: .*empty"):
        main()
    assert not (tmp_path / "ours").exists()


def test_command_says_how_an_encoder_is_given_that_it_does_not_find(config, weights, tmp_path, monkeypatch):
    folder = write(tmp_path / "theirs", {**config, "_encoder_name": "nobody/encoder"}, weights)
    monkeypatch.setattr(sys, "argv", ["convert", str(folder), str(tmp_path / "ours")])
    with pytest.raises(SystemExit, match=r"^error: .*'nobody/encoder'.*on the command line --chunk_encoder FOLDER"):
        main()


# What is refused.


def refused(message, folder, *args, error=ValueError):
    with pytest.raises(error, match=message):
        convert_checkpoint(folder, *args)


def test_unknown_and_missing_tensors(encoders, config, weights, tmp_path):
    strange = {f"bert.pooler.strange.{number}": torch.zeros(1) for number in range(7)}
    folder = write(tmp_path / "unknown", config, {**weights, **strange})
    first = ", ".join(f"bert.pooler.strange.{number}" for number in range(5))
    refused(rf"has 7 tensor\(s\) that are unknown here: {re.escape(first)} and 2 more\.", folder, encoders[True])
    both = {**weights, "encoder.0.model.pooler.dense.bias": torch.zeros(32)}  # two spellings side by side
    refused(rf"has 39 tensor.*: {re.escape(FROZEN)}", write(tmp_path / "both", config, both), encoders[True])
    few = {name: tensor for name, tensor in weights.items() if not name.startswith(LAYER)}
    folder = write(tmp_path / "missing", config, few)
    refused(
        rf"lacks 16 tensor\(s\): {re.escape(LAYER)}attention\.output\.LayerNorm\.bias, .* and 11 more",
        folder,
        encoders[True],
    )
    del weights["special_vec_embeddings.weight"], weights[FROZEN + "embeddings.LayerNorm.bias"]
    folder = write(tmp_path / "two", config, weights)
    refused(
        r"lacks 2 tensor\(s\): encoder\.0\.auto_model\.embeddings\.LayerNorm\.bias, special_vec_emb",
        folder,
        encoders[True],
    )


def test_shapes_that_do_not_fit(encoders, config, weights, tmp_path):
    weights["special_vec_embeddings.weight"] = torch.zeros(5, 32)
    folder = write(tmp_path / "shape", config, weights)
    refused(r"special_vec_embeddings\.weight \(5, 32\) \(here: \(4, 32\)\)", folder, encoders[True])


def test_encoder_of_other_weights(tiny, encoders, config, weights, tmp_path):
    for layer in (1, 0):
        weights[f"{FROZEN}encoder.layer.{layer}.output.dense.weight"][3, 5] += 1e-3
    folder = write(tmp_path / "other", config, weights)
    first = rf"{re.escape(FROZEN)}encoder\.layer\.0\.output\.dense\.weight is not that of the chunk encoder 'encoder'"
    refused(rf"{first} \(they differ by up to 0\.001\)", folder, encoders[True])


def test_second_level_and_encoder_in_each_others_place(encoders, config, weights, tmp_path):
    """All their shapes are the same, so only the comparison of the frozen weights can tell."""
    for name in [name for name in weights if name.startswith("bert.")]:
        frozen = name.replace("bert.", FROZEN, 1)
        weights[name], weights[frozen] = weights[frozen], weights[name]
    refused(
        f"{re.escape(FROZEN)}embeddings.LayerNorm.bias is not", write(tmp_path / "x", config, weights), encoders[True]
    )


def test_encoder_of_another_architecture(tiny, encoders, config, weights, minilm, tmp_path):
    refused(r"'sentence-transformers/all-MiniLM-L6-v2': hidden_size 32 \(encoder: 384\)", tiny / "checkpoint", minilm)
    # The number of heads shows in no shape; where it is left out, it is BERT's own 12.
    without = {key: value for key, value in config["encoder_config"].items() if key != "num_attention_heads"}
    for heads, described in ((8, {**without, "num_attention_heads": 8}), (12, without)):
        folder = write(tmp_path / str(heads), {**config, "encoder_config": described}, weights)
        refused(rf"num_attention_heads {heads} \(encoder: 4\)", folder, encoders[True])


@pytest.mark.parametrize("chunk_size", [1, 2, -3, 513])
def test_chunk_sizes(tiny, encoders, chunk_size):
    bound = "at most 512" if chunk_size > 2 else "at least 3"
    refused(rf"(?s){chunk_size} .*{bound}", tiny / "checkpoint", encoders[True], chunk_size)


def test_chunk_size_that_is_no_number(encoders, config, weights, tmp_path):
    folder = write(tmp_path / "text", {**config, "chunk_size": "16"}, weights)
    refused("chunk_size must be a whole number .* got '16'", folder, encoders[True])


class Hostile:
    """Python's own unpickler would make a file when it opens this."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


class HostileBuiltin(Hostile):
    """The same by a function that no list of dangerous modules can miss."""

    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w').close()",)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(("kind", "named"), [(Hostile, r"\w+\.system"), (HostileBuiltin, "eval")])
@pytest.mark.parametrize("where", ["beside the tensors", "as a tensor", "in a .ckpt"])
def test_hostile_pickle(encoders, config, weights, tmp_path, zipped, kind, named, where):
    trace = tmp_path / "trace"
    held = {
        "beside the tensors": {"state_dict": weights, "more": kind(trace)},
        "as a tensor": {**weights, "special_vec_embeddings.weight": kind(trace)},
        "in a .ckpt": lightning(weights, kind(trace), None),
    }[where]
    folder = write_pickle(tmp_path / "hostile", config, held, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=rf"would call {named}, and only tensors are read here") as refusal:
        convert_checkpoint(folder, encoders[True])
    assert "weights_only" not in str(refusal.value)
    assert (
        refusal.value.__suppress_context__
    )  # what the traceback would show: PyTorch's advice to open it all the same
    assert not trace.exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert trace.exists()  # it is what it is said to be


def test_hostile_pickle_that_no_torch_wrote(encoders, config, tmp_path):
    trace = tmp_path / "trace"
    folder = write_pickle(tmp_path / "hostile", config, {})
    for protocol in range(3):  # of later ones PyTorch warns, and knows half of their instructions
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Hostile(trace)}, protocol))
        refused("hostile/pytorch_model.bin' (was refused|cannot be read as tensors)", folder, encoders[True])
        assert not trace.exists()


@pytest.mark.parametrize("held", [[torch.zeros(2)], {"a": 1}, {"state_dict": [1]}, {1: torch.zeros(2)}, "text"])
def test_pickle_of_something_else(encoders, config, tmp_path, held):
    folder = write_pickle(tmp_path / "else", config, held)
    refused("pytorch_model.bin' holds no state dict", folder, encoders[True])


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("length", [0, 100, 5_000])
def test_pickle_that_is_cut_off(encoders, config, weights, tmp_path, length, zipped):
    folder = write_pickle(tmp_path / "cut", config, weights, _use_new_zipfile_serialization=zipped)
    file = folder / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:length])
    refused("cannot be read as tensors: it is damaged", folder, encoders[True])


def test_files_that_are_missing_or_damaged(tiny, encoders, config, weights, tmp_path):
    folder = write(tmp_path / "theirs", config, weights)
    (folder / "model.safetensors").rename(tmp_path / "aside")
    how = r"has no model\.safetensors or pytorch_model\.bin; it holds config\.json\."
    refused(how, folder, error=FileNotFoundError)
    (folder / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1")
    refused("cannot be read as tensors: it is damaged, only a pointer", folder)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    refused("theirs' is damaged, or only a pointer", folder)
    (tmp_path / "aside").rename(folder / "model.safetensors")
    (folder / "config.json").write_text("{")
    refused("theirs' is damaged", folder)
    (folder / "config.json").write_text(json.dumps({"hidden_size": 32}))
    refused("lacks _encoder_name, chunk_size, encoder_config, .* it has hidden_size", folder)
    refused("lacks encoder_config,", folder, encoders[True], 16)
    (folder / "config.json").unlink()
    refused(r"has no config\.json; it holds model\.safetensors", folder, error=FileNotFoundError)


def test_our_own_checkpoint(tiny, encoders, tmp_path):
    convert_checkpoint(tiny / "checkpoint", encoders[True]).save_pretrained(tmp_path)
    refused(r"already has this package's format: open it with AutoModel\.from_pretrained", tmp_path)
