"""A saved checkpoint whose files are changed, cut, emptied, removed or exchanged: every way of opening it says so."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from nextlevelbert import combine_chunk_encoders, distill_chunk_encoder, load_chunk_encoder
from nextlevelbert.models.saved_files import SUMS
from tests.golden.inputs import CLASSES, DOCUMENTS, FOLDER

from .damage import Tally, damages
from .harness import forked

FAMILIES = {
    "nextlevelbert": "nextlevelbert-classification",
    "hate": "hate-masked",
    "chunkbert": "chunkbert-classification",
    "bert-al": "bert-al-summarization",
    "cdlm": "cdlm-questions",
}
TEXT = DOCUMENTS[0].text
OTHER_JSON = {"a list": b"[]", "an empty object": b"{}", "a text": b'"config"', "a number": b"1", "null": b"null"}
# Read by transformers and sentence-transformers before any code of a model: errors of theirs come first.
READ_BEFORE = {
    "auto": {"config.json"},
    "sentence-transformers": {
        "config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    },
}  # fmt: skip


def digest(model: Any, tokenizer: Any) -> str:
    """A hash of all weights, the configuration, and how a text is read."""
    config = {key: value for key, value in model.config.to_dict().items() if key != "_name_or_path"}
    found = hashlib.sha256(repr((sorted(config.items(), key=str), tokenizer(TEXT)["input_ids"])).encode())
    for name, weight in sorted(model.state_dict().items()):
        found.update(name.encode() + weight.numpy().tobytes())
    return found.hexdigest()


def by_class(family: str) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        model = CLASSES[FAMILIES[family]].from_pretrained(folder)
        return digest(model, model.tokenizer)

    return read


def by_auto_class(folder: Path) -> str:
    model = AutoModel.from_pretrained(folder)
    return digest(model, model.tokenizer)


def by_sentence_transformers(folder: Path) -> list[float]:
    # Rounded: the last bits depend on where in memory the weights lie.
    return SentenceTransformer(str(folder), device="cpu").encode(TEXT[:150]).round(3).tolist()


def chunk_encoder(folder: Path) -> str:
    source = load_chunk_encoder(folder, "name")
    return digest(source.encoder.model, source.tokenizer) + source.encoder.fingerprint() + source.encoder.pooling


def by_own_code(folder: Path) -> str:
    """As `trust_remote_code` does: by the code in the folder."""
    kind = get_class_from_dynamic_module("modeling_nextlevelbert.NextLevelBertModel", str(folder))
    model = kind.from_pretrained(folder)
    return digest(model, model.tokenizer)


ROUTES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    **{family: (family, by_class(family)) for family in FAMILIES},
    **{f"auto {family}": (family, by_auto_class) for family in FAMILIES},
    **{f"sentence-transformers {family}": (family, by_sentence_transformers) for family in FAMILIES},
    "chunk encoder of nextlevelbert": ("nextlevelbert", chunk_encoder),
    "chunk encoder of hate": ("hate", chunk_encoder),
    "chunk encoder static": ("static", chunk_encoder),
    "chunk encoder hybrid": ("hybrid", chunk_encoder),
    "own code": ("nextlevelbert", by_own_code),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saves what a route opens, once each."""
    place = tmp_path_factory.mktemp("saved")

    def save(what: str) -> Path:
        folder = place / what
        if folder.exists():
            return folder
        if what in FAMILIES:
            CLASSES[FAMILIES[what]].from_pretrained(FOLDER / FAMILIES[what]).save_pretrained(folder)
            return folder
        whole = load_chunk_encoder(FOLDER / "encoder" / "sentences", "golden/encoder")
        if what == "static":
            distill_chunk_encoder(whole, folder)
        else:
            combine_chunk_encoders([whole, whole], [each.text for each in DOCUMENTS], folder, chunk_size=12)
        return folder

    return save


def changes(folder: Path, other: Path, flips: int, cuts: int) -> Iterator[tuple[str, str, bytes | None]]:
    """Of every file: the damages, and for JSON other content, each field left out, and the file of another family."""
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.suffix in (".py", ".md"):
            continue
        name, content = str(path.relative_to(folder)), path.read_bytes()
        for what, damaged in damages(content, flips, cuts):
            yield name, what, damaged
        if path.suffix == ".json":
            for what, damaged in OTHER_JSON.items():
                yield name, f"replaced by {what}", damaged
            fields = json.loads(content)
            for key in fields if isinstance(fields, dict) and name != "tokenizer.json" and flips > 4 else []:
                left = {each: value for each, value in fields.items() if each != key}
                yield name, f"without {key}", json.dumps(left).encode()
        if (other / name).exists() and (theirs := (other / name).read_bytes()) != content:
            yield name, "replaced by another family's", theirs


def damage_checkpoint(saved, route: str, work: Path, flips: int, cuts: int, every: int = 1) -> tuple[Tally, list[str]]:
    """What came of damages (each, or every so many), and the errors of others that came before any code of a model."""
    what, read = ROUTES[route]
    whole, other = saved(what), saved("hate" if what == "nextlevelbert" else "nextlevelbert")
    before = READ_BEFORE.get(route.split()[0], set())
    tally, theirs = Tally(read(whole)), []
    for name, how, damaged in itertools.islice(changes(whole, other, flips, cuts), 0, None, every):
        folder = shutil.copytree(whole, work / "copy")
        (folder / name).unlink()
        if damaged is not None:
            (folder / name).write_bytes(damaged)
        outcome = forked(lambda folder=folder: _heard(read, folder), work)
        value, warned = outcome.value or (None, False)
        outcome = replace(outcome, value=value)
        if outcome.raw and name in before:
            theirs.append(f"{name} {how}: {outcome.error}")
            outcome = replace(outcome, raw=False)
        if route == "own code" and str(outcome.error).startswith(f"ValueError: {folder}"):
            outcome = replace(outcome, raw=False)  # of our code, which lies elsewhere now
        tally.note(
            name, how, outcome, harmless=(name, damaged) == (SUMS, None), warned=warned and name == "config.json"
        )
        shutil.rmtree(folder)
    print(f"--- {route}\n{tally}\nraised by others: {len(theirs)}", *theirs, sep="\n")
    return tally, theirs


def _heard(read: Callable[[Path], Any], folder: Path) -> tuple[Any, bool]:
    """What was read, and whether a warning told that the configuration was edited."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        value = read(folder)
    return value, any("config.json is not what was saved" in str(each.message) for each in heard)


def test_some_damages(saved, tmp_path):
    tally, _ = damage_checkpoint(saved, "nextlevelbert", tmp_path, 2, 1, every=4)
    assert tally.bad == [], str(tally)


# Of routes that differ from another one in the class only, fewer; the strides share no factor with the number of
# damages that a file has, so that each kind of damage meets each kind of file somewhere.
_THIRD = {"nextlevelbert", "auto nextlevelbert", "sentence-transformers nextlevelbert", "own code"}


@pytest.mark.faults
@pytest.mark.parametrize("route", ROUTES)
def test_many_damages(saved, tmp_path, route):
    every = 3 if route in _THIRD or route.startswith("chunk encoder") else 7
    tally, _ = damage_checkpoint(saved, route, tmp_path, 6, 2, every)
    assert tally.bad == [], str(tally)
