"""Arguments of `from_pretrained` that the makers of new models take reach the Hub's client."""

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertModel

from nextlevelbert import (
    BertAlModel,
    CdlmModel,
    ChunkBertModel,
    HateModel,
    NextLevelBertModel,
    load_chunk_encoder,
)

LOAD_EACH = """
import json, sys
from pathlib import Path
import nextlevelbert as nlb
from nextlevelbert.models.chunk_encoder import weights_fingerprint

folder = sys.argv[1]

def fingerprints(**loading):
    encoder = nlb.load_chunk_encoder("user/sentences", **loading)
    model = nlb.NextLevelBertModel.from_chunk_encoder(
        "user/sentences", chunk_size=16, num_hidden_layers=1, **loading
    )
    small = nlb.HateModel.from_chunk_encoder(
        "user/sentences", chunk_size=16, num_hidden_layers=1, **loading
    )
    pieces = nlb.ChunkBertModel.from_encoder(
        "user/sentences", chunk_size=16, num_averaged_layers=2, **loading
    )
    return {
        "encoder": encoder.fingerprint,
        "nextlevelbert": model.config.chunk_encoder_fingerprint,
        "hate": small.config.chunk_encoder_fingerprint,
        "chunkbert": weights_fingerprint(pieces.encoder),
    }

results = {"main": fingerprints(), "v2": fingerprints(revision="v2")}
results["inner"] = fingerprints(subfolder="inner")
results["cached"] = fingerprints(
    revision="v2", cache_dir=f"{folder}/cache", token="hf_argument"
)
results["cache"] = sorted(path.name for path in Path(folder, "cache").glob("models--*"))
results["from_cache"] = fingerprints(
    revision="v2", cache_dir=f"{folder}/cache", local_files_only=True
)
results["errors"] = []
for loading in (
    {"local_files_only": True, "cache_dir": f"{folder}/empty"},
    {"revision": "v3"},
    {"subfolder": "outer"},
):
    try:
        fingerprints(**loading)
    except FileNotFoundError as error:
        results["errors"].append(str(error))
print(json.dumps(results))
"""


def files_below(folder, prefix=""):
    """The files of a folder by their names, as a commit holds them."""
    files = {}
    for path in Path(folder).rglob("*"):
        if path.is_file():
            files[f"{prefix}{path.relative_to(folder)}"] = path.read_bytes()
    return files


@pytest.fixture(scope="module")
def versions(toy_encoder_path, tmp_path_factory):
    """Folders of three sentence encoders, which differ in their weights."""
    folders = {"main": toy_encoder_path}
    for seed, name in enumerate(("v2", "inner")):
        model = SentenceTransformer(toy_encoder_path, device="cpu")
        torch.manual_seed(seed)
        network = model[0].auto_model
        network.load_state_dict(BertModel(network.config).state_dict())
        folders[name] = str(tmp_path_factory.mktemp(name))
        model.save_pretrained(folders[name])
    return folders


def test_each_argument_reaches_the_hub(hub, fresh_process, versions, tmp_path):
    inner = files_below(versions["inner"], prefix="inner/")
    hub.put("user/sentences", {**files_below(versions["main"]), **inner})
    hub.put("user/sentences", files_below(versions["v2"]), branch="v2")
    expected = {name: load_chunk_encoder(path).fingerprint for name, path in versions.items()}

    output = fresh_process(LOAD_EACH, tmp_path)

    results = json.loads(output.splitlines()[-1])
    assert len(set(expected.values())) == 3
    for name, fingerprint in expected.items():
        assert set(results[name].values()) == {fingerprint}
    assert results["cached"] == results["from_cache"] == results["v2"]
    assert results["cache"] == ["models--user--sentences"]
    assert "Bearer hf_argument" in hub.authorizations
    assert len(results["errors"]) == 3


def makers(path):
    """Each function that makes a model of an encoder, with the keyword arguments that it needs."""
    sizes = {"chunk_size": 16, "num_hidden_layers": 1}
    return [
        lambda **more: load_chunk_encoder(path, **more),
        lambda **more: NextLevelBertModel.from_chunk_encoder(path, **sizes, **more),
        lambda **more: HateModel.from_chunk_encoder(path, **sizes, **more),
        lambda **more: ChunkBertModel.from_encoder(path, num_averaged_layers=2, **more),
        lambda **more: BertAlModel.from_encoder(path, **more),
        lambda **more: CdlmModel.from_encoder(path, max_length=64, **more),
    ]


def test_an_unknown_argument_is_an_error_that_names_the_nearest_one(toy_encoder_path):
    for make in makers(toy_encoder_path):
        with pytest.raises((TypeError, ValueError), match=r"'revison' \(did you mean 'revision'"):
            make(revison="v2")


def test_code_of_an_encoder_is_refused(toy_encoder_path):
    for make in makers(toy_encoder_path):
        make(trust_remote_code=False)
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            make(trust_remote_code=True)


def test_arguments_for_an_encoder_that_is_already_loaded_are_refused(toy_encoder_path):
    encoder = load_chunk_encoder(toy_encoder_path)

    with pytest.raises(ValueError, match="already loaded, so that revision"):
        NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=16, revision="v2")


def test_a_subfolder_on_this_machine(versions, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(versions["v2"], chunk_size=16)
    model.save_pretrained(tmp_path / "models" / "book")

    encoder = load_chunk_encoder(tmp_path, subfolder="models/book")

    assert encoder.fingerprint == load_chunk_encoder(versions["v2"]).fingerprint
