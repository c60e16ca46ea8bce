"""Reads with a sentence encoder by ONNX Runtime, without torch and transformers.

An encoder is exported once, compared with torch, and kept in the cache. An export is a folder:

=================  =================================================================================
float32.onnx       the graph from token ids ``[N, C]`` to chunk vectors ``[N, D]``
int8.onnx          the graph with weights of 8 bits, which have a scale for each channel
tokenizer.json     the tokenizer
encoder.json       the rules that split texts into chunks, and what is stored beside vectors
=================  =================================================================================
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...models.chunking import ChunkingRule
from ...models.files import load_json, whole_folder
from ...models.prompts import SplitDocument, tokenize_and_split
from ..reading import state_of_files
from .files import FileEncoder, FileTokenizer

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# onnxruntime would write a session of its telemetry into the temporary folder.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
MINILM = Path(__file__).parents[2] / "minilm"
"""The export of all-MiniLM-L6-v2 that is installed with the package, in 8 bits."""
EXPORTS = ".encoders"
"""Folder of the exports in the cache."""
_VERSION = 1  # raised when encoders have to be exported again
DESCRIPTION = "encoder.json"
_TOKENS_PER_BATCH = 2_048  # as in `ChunkEncoder.encode`


class OnnxEncoder(FileEncoder):
    """Computes the vectors of a sentence encoder from its export.

    Chunks of one length share a batch, so that nothing is padded. With weights of 8 bits, a vector
    would depend on the other chunks of its batch, so that each chunk is read alone.

    Args:
        folder: folder of the export.
        dtype: the graph to use, ``"float32"`` or ``"int8"``.

    Attributes:
        tokenizer: the tokenizer.
        rule: the rule that splits documents into chunks, with the prompt of passages.
        encoder_recipe: what determines the vectors of chunks, as in `ChunkVectors.recipe`.
    """

    has_layers = True
    has_token_vectors = False
    is_whitened = False

    def __init__(self, folder: Path, dtype: str) -> None:
        self._graph = folder / f"{dtype}.onnx"
        stored = load_json(folder / DESCRIPTION)
        self._fingerprint: str = stored["fingerprint"]
        self.tokenizer: Any = FileTokenizer(folder / "tokenizer.json", **stored["tokenizer"])
        self.rule = _rule(stored["passage_rule"])
        self._query_rule = _rule(stored["query_rule"])
        self.encoder_recipe: dict[str, Any] = stored["recipe"] | {"dtype": dtype}
        self._tokens_per_batch = _TOKENS_PER_BATCH
        if dtype == "int8":
            self._tokens_per_batch = 1

    def __str__(self) -> str:
        recipe = self.encoder_recipe
        return f"{recipe['name']} on cpu in {recipe['dtype']}, by ONNX Runtime"

    def fingerprint(self) -> str:
        """Returns the identity of the model in torch, with which float32 shares its vectors."""
        return self._fingerprint

    def question_vector(self, question: str) -> np.ndarray | None:
        """Encodes a question, see `TorchEncoder.question_vector`."""
        group = tokenize_and_split(self.tokenizer, [question], self._query_rule, splitter=None)
        vectors = self._run(group, self._query_rule)
        if len(vectors) == 0:
            return None
        return self.search_vectors(vectors.mean(axis=0))

    def chunk_vectors(self, group: Sequence[SplitDocument]) -> np.ndarray:
        """Runs the graph over the chunks of documents, ``[N, D]``."""
        return self._run(group, self.rule)

    @cached_property
    def _session(self) -> InferenceSession:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # each thread of `_run` has a batch of its own
        return onnxruntime.InferenceSession(
            self._graph, options, providers=["CPUExecutionProvider"]
        )

    def _run(self, group: Sequence[SplitDocument], rule: ChunkingRule) -> np.ndarray:
        """Encodes the chunks of documents, which begin with the prompt of a rule, ``[N, D]``."""
        chunks = []
        for document, boundaries in group:
            ids = document.input_ids.tolist()
            for start, stop in itertools.pairwise(boundaries.tolist()):
                chunks.append([*rule.head_ids, *ids[start:stop], *rule.suffix_ids])
        vectors = np.zeros((len(chunks), self.encoder_recipe["hidden_size"]), np.float32)
        session = self._session

        def run(batch: np.ndarray) -> int:
            ids = np.array([chunks[index] for index in batch])
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            [vectors[batch]] = session.run(None, inputs)
            return len(batch)

        batches = batches_by_length(np.array(list(map(len, chunks))), self._tokens_per_batch)
        if len(batches) < 2:  # a question
            list(map(run, batches))
            return vectors
        from tqdm import tqdm  # a third of the time that numpy takes

        # The bar is hidden (None) if stderr is a file.
        bar = tqdm(total=len(chunks), unit="chunk", desc="encoding", disable=None, delay=1)
        with bar, ThreadPoolExecutor(os.cpu_count()) as pool:
            for count in pool.map(run, batches):
                bar.update(count)
        return vectors


def _rule(fields: dict[str, Any]) -> ChunkingRule:
    """Makes a rule of values from JSON, which has no tuples."""
    values = fields.copy()
    for name in ("prefix_ids", "suffix_ids", "prompt_ids"):
        values[name] = tuple(fields[name])
    return ChunkingRule(**values)


def batches_by_length(lengths: np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Groups chunks of the same length, the shortest first.

    Args:
        lengths: number of tokens in each chunk, ``[N]``.
        tokens_per_batch: most tokens of a group; a group has at least one chunk.

    Returns:
        The indices of the chunks of each group.
    """
    batches = []
    for length in np.unique(lengths).tolist():
        same = np.flatnonzero(lengths == length)
        most = max(1, tokens_per_batch // length)
        batches += [same[start : start + most] for start in range(0, len(same), most)]
    return batches


class Export:
    """The export of an encoder, which may not have been made yet.

    It belongs to the encoder's files, by their paths, sizes, times and inodes: an encoder that was
    changed has another export.

    Args:
        source: folder of the encoder.
        cache_dir: folder of the cache.

    Attributes:
        folder: folder of the export.
        is_settled: true if the next change to the encoder will have another time stamp.
    """

    def __init__(self, source: Path, cache_dir: Path) -> None:
        paths = sorted(filter(Path.is_file, source.absolute().rglob("*")))
        state = state_of_files(paths)
        self.is_settled = state != ""
        named = repr((_VERSION, paths, state))
        key = hashlib.sha256(named.encode(errors="replace")).hexdigest()
        self.folder = cache_dir / EXPORTS / key[:32]

    @property
    def is_made(self) -> bool:
        """Returns whether there is the export."""
        return (self.folder / DESCRIPTION).is_file()

    def open(self, dtype: str) -> OnnxEncoder:
        """Opens the export, whose weights are put into 8 bits if need be."""
        if not (self.folder / f"{dtype}.onnx").is_file():
            with whole_folder(self.folder) as temporary:
                quantize(self.folder / "float32.onnx", temporary / "int8.onnx")
        with suppress(OSError):  # a cache that is read-only
            os.utime(self.folder)  # `nextlevelbert cache` lists when it was last used
        return OnnxEncoder(self.folder, dtype)


def quantize(graph: Path, output: Path) -> None:
    """Writes a graph with weights of 8 bits.

    Weights are unsigned: products of signed ones saturate on processors without VNNI, whose vectors
    would be others. A scale for each channel matters: with one for each matrix, MiniLM's vectors
    have a cosine of .92 to those in float32, in place of .99.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with without_warnings():
        quantize_dynamic(graph, output, per_channel=True, weight_type=QuantType.QUInt8)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hides the warnings of exporters, which are for those who write models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
