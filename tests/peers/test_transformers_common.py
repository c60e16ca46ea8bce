"""transformers' common model tests over the classes of this package.

They are in the source archive of the installed version, which pip fetches, with the one package
that they need beside transformers. Without a package index this test fails: nothing else says
whether the classes still behave as transformers' own.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
import transformers

HERE = Path(__file__).parent
# Modules that the common tests import, and the archive leaves out.
LEFT_OUT = {
    "__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin: ...",
    "generation/test_utils.py": "class GenerationTesterMixin: ...",
    "utils/test_configuration_utils.py": "config_common_kwargs = {'output_hidden_states': True}",
}

OVER_CHUNKS = (
    "NextLevelBert NextLevelBertResidual NextLevelBertMasked NextLevelBertContrastive Hate".split()
)
PIECEWISE = ["ChunkBert", "BertAl"]
CDLM = ["CdlmMaskedLM", "CdlmCoreference", "CdlmQuestions"]
BOOL_OUTPUTS = "an output is a bool mask, which the test subtracts"
CHUNK_VECTORS = "inputs_embeds are vectors of chunks, which no table of token vectors gives"
FROZEN_TABLE = "the token vectors belong to the frozen chunk encoder and cannot be replaced"
PIECES = "a document that is read piece by piece has no hidden states, and a request is an error"
RANDOM_BUFFER = "the vectors of special tokens are random, and are drawn when weights are"
SLICES = "in eager mode states are slices of padded ones, as in transformers' own Longformer"

# Test, classes that fail it, and the reason why that is right.
EXPECTED_FAILURES = [
    ("test_batching_equivalence", PIECEWISE, PIECES),
    ("test_can_capture_specific_layers_hidden_states", PIECEWISE, PIECES),
    ("test_capture_outputs_decorator", PIECEWISE, PIECES),
    ("test_hidden_states_output", PIECEWISE, PIECES),
    ("test_init_weights_can_init_buffers", ["Hate"], RANDOM_BUFFER),
    ("test_inputs_embeds", OVER_CHUNKS, CHUNK_VECTORS),
    ("test_model_get_set_embeddings", OVER_CHUNKS, FROZEN_TABLE),
    ("test_model_outputs_equivalence", ["NextLevelBert", "BertAl"], BOOL_OUTPUTS),
    ("test_model_outputs_equivalence", ["CdlmCoreference"], BOOL_OUTPUTS),
    ("test_model_outputs_equivalence", ["ChunkBert"], PIECES),
    ("test_retain_grad_hidden_states_attentions", PIECEWISE, PIECES),
    ("test_retain_grad_hidden_states_attentions", CDLM, SLICES),
]


def expected_failures() -> set[tuple[str, str]]:
    return {(test, name) for test, names, _ in EXPECTED_FAILURES for name in names}


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        pytest.fail(f"pip cannot fetch what the test needs (is there a network?): {ended.stderr}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with transformers' common tests, and the testers of this package among them."""
    folder = tmp_path_factory.mktemp("transformers")
    name = f"transformers-{transformers.__version__}"
    from_source = [
        "--no-binary",
        ":all:",
        "--no-deps",
        "--no-build-isolation",
        "--dest",
        str(folder),
    ]
    pip("download", *from_source, name.replace("-", "=="))
    pip("install", "--no-deps", "--target", str(folder / "packages"), "parameterized==0.9.0")
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")

    tests = folder / "tests"
    (folder / name / "tests").rename(tests)
    for path, text in LEFT_OUT.items():
        (tests / path).parent.mkdir(exist_ok=True)
        (tests / path).write_text(text, encoding="utf-8")
    shutil.copy(HERE / "model_testers.py", tests / "test_nextlevelbert.py")
    return folder


def outcomes(report: Path) -> tuple[set[tuple[str, str]], dict[tuple[str, str], str]]:
    """The tests that passed, and the message of each failure, by test and class."""
    passed = set()
    failed = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = re.sub(r"_\d+_.*", "", case.get("name"))  # without its parameters
        key = (name, case.get("classname").rpartition(".")[2])
        failure = case.find("failure")
        if failure is not None:
            failed[key] = failure.get("message").splitlines()[0][:200]
        elif case.find("error") is not None:
            failed[key] = "error: " + case.find("error").get("message")[:200]
        elif case.find("skipped") is None:
            passed.add(key)
    return passed - failed.keys(), failed


@pytest.mark.long
def test_only_what_cannot_apply_fails(folder):
    path = os.pathsep.join([str(HERE.parents[1]), str(folder / "packages")])
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command += ["--junitxml=report.xml", "tests/test_nextlevelbert.py"]

    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "TRANSFORMERS_TEST_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (folder / "report.xml").exists(), ended.stdout + ended.stderr
    passed, failed = outcomes(folder / "report.xml")
    expected = expected_failures()
    new = {key: failed[key] for key in failed.keys() - expected}
    assert not new, "these fail, and are not in the table"
    assert not expected - failed.keys(), "these are in the table, and do not fail"
    assert len(passed) > 500
