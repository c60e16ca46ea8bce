"""The chunk encoder in int8, for CPUs with VNNI: NNCF measures its ranges on real chunks, OpenVINO runs it.

Needs ``pip install nextlevelbert[int8]``. Nothing is downloaded at run time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..models.chunk_encoder import ChunkEncoder, same_fingerprint
from ..models.chunking import ChunkingRule, tokenize_document
from ..models.encoder_loading import LoadedChunkEncoder
from .files import write_atomically

_MODEL = "chunk_encoder_int8.xml"  # and .bin
_FACTS = "chunk_encoder_int8.json"

_TEXTS = 16  # to calibrate on

# The second matrix of each feed-forward block reads GELU outputs with outliers: in int8 it lowers the cosine to
# float32 more than all others together. Embedding tables gain no speed, and their error is in every chunk alike.
_KEPT_FLOAT = [r".*layer\.\d+\.output\.dense.*", r".*embedding.*"]


class Int8ChunkEncoder(ChunkEncoder):
    """Runs a quantised encoder from a folder; in everything else a `ChunkEncoder`.

    Args:
        folder: what `quantize_chunk_encoder` wrote.
        source: the encoder that it was made from.
    """

    def __init__(self, folder: Path, source: LoadedChunkEncoder) -> None:
        import openvino

        nn.Module.__init__(self)  # not the parent's: there is no network of torch
        self.model: Any = _OnlyConfig(source.encoder.model.config)
        self.dense = nn.Sequential()  # within the network
        self.pooling, self.normalize = source.encoder.pooling, source.encoder.normalize
        self._fingerprint = source.fingerprint
        self._digest = _digest(folder)
        # One stream a core: each works on chunks of its own and waits for no other within a layer.
        self._streams = torch.get_num_threads()
        hints = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": self._streams}
        network = openvino.Core().compile_model(folder / _MODEL, "CPU", {**hints, "NUM_STREAMS": self._streams})
        self._queue = openvino.AsyncInferQueue(network, self._streams)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def precision(self) -> str:
        return f"int8 {self._digest[:12]}"  # other texts to calibrate on make another encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Chunk vectors ``[N, D]`` of chunk ids ``[N, C]``, special tokens included; no mask means no padding."""
        ids = input_ids.numpy()
        mask = np.ones_like(ids) if attention_mask is None else attention_mask.numpy()
        parts: dict[int, np.ndarray] = {}
        self._queue.set_callback(lambda request, part: parts.update({part: request.get_output_tensor(0).data.copy()}))
        for part, rows in enumerate(np.array_split(np.arange(len(ids)), min(self._streams, len(ids)))):
            self._queue.start_async([ids[rows], mask[rows]], part)
        self._queue.wait_all()
        return torch.from_numpy(np.concatenate([parts[part] for part in sorted(parts)]))

    def prepared(self, dtype: torch.dtype | str | None, device: str | torch.device, compile: bool) -> ChunkEncoder:
        """Itself: it has its own arithmetic and runs on the CPU."""
        if torch.device(device).type != "cpu" or compile:
            raise ValueError(
                f"An int8 chunk encoder runs on the CPU, not compiled; got {device=}, {compile=}. Leave both out "
                "(on a machine with a GPU: --use_cpu), or use bfloat16."
            )
        return self

    def fingerprint(self) -> str:
        """That of the weights it was made from: a model that was made with those takes this form of them, too."""
        return self._fingerprint

    def identity(self) -> str:
        """A hash of the quantised network, so that its vectors are never taken for others from a cache."""
        return self._digest


def _digest(folder: Path) -> str:
    """A hash of the quantised network."""
    files = (folder / _MODEL, (folder / _MODEL).with_suffix(".bin"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class _OnlyConfig(nn.Module):
    """Stands where a `ChunkEncoder` has its network, for those who ask about its configuration."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config


def quantize_chunk_encoder(
    source: LoadedChunkEncoder,
    texts: Iterable[str],
    rule: ChunkingRule,
    folder: str | os.PathLike[str],
    chunks: int = 128,
) -> LoadedChunkEncoder:
    """Makes an int8 form of a chunk encoder, saves it into a folder, and opens it.

    Weights and activations of the matrix products become int8 (SmoothQuant, per-channel weights) except
    where that costs most accuracy; the rest is computed in bfloat16. For all-MiniLM-L6-v2 about 1.7 times
    the speed of bfloat16, at a cosine to float32 above 0.998 on novels (docs/performance.md). A chunk's vector
    depends a little on the chunks beside it in a micro-batch (cosine 0.9998), which it does not in float32.

    Args:
        source: the encoder in float32, a BERT.
        texts: the first 16 are used; best of all the kinds that will be encoded.
        rule: how they are cut.
        folder: where it is written (69 MB for MiniLM).
        chunks: full chunks to measure activations on.

    Raises:
        ImportError: without OpenVINO and NNCF.
        ValueError: if the texts do not have a single full chunk, or the encoder is no BERT.
    """
    # Conversion reports to an analytics service without asking; both packages go on in silence without this one.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import nncf
        import openvino
        from nncf.quantization.advanced_parameters import (
            AdvancedQuantizationParameters,
            AdvancedSmoothQuantParameters,
        )
    except ImportError as error:
        raise ImportError("An int8 chunk encoder needs OpenVINO and NNCF: pip install nextlevelbert[int8]") from error
    if source.encoder.model.config.model_type != "bert":
        raise ValueError(
            f"Only BERT encoders can be quantised; {source.name!r} is a {source.encoder.model.config.model_type!r}; "
            "use bfloat16."
        )
    logging.getLogger("nncf").setLevel(logging.WARNING)  # otherwise it lists every operation that stays as it is
    rows = _full_chunks(source, texts, rule, chunks)
    samples = [(row[None], np.ones_like(row[None])) for row in rows]
    ids = torch.from_numpy(np.stack([rows[0], rows[-1]]))
    mask = torch.ones_like(ids)
    mask[1, ids.shape[1] // 2 :] = 0  # a trace without padding might leave the mask out
    with torch.no_grad():
        network = openvino.convert_model(
            source.encoder,
            example_input=(ids, mask),
            input=[("input_ids", [-1, -1]), ("attention_mask", [-1, -1])],
        )
    quantized = nncf.quantize(
        network,
        nncf.Dataset(samples),
        subset_size=len(samples),
        model_type=nncf.ModelType.TRANSFORMER,
        ignored_scope=nncf.IgnoredScope(patterns=_KEPT_FLOAT),
        advanced_parameters=AdvancedQuantizationParameters(
            smooth_quant_alphas=AdvancedSmoothQuantParameters(matmul=0.75)
        ),
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FACTS).unlink(missing_ok=True)
    openvino.save_model(quantized, folder / _MODEL, compress_to_fp16=False)
    # Last, so that a folder that has it is whole.
    facts = {"fingerprint": source.fingerprint, "chunks": len(rows), "sha256": _digest(folder)}
    write_atomically(folder / _FACTS, (json.dumps(facts) + "\n").encode())
    return load_int8_chunk_encoder(source, folder)


def load_int8_chunk_encoder(source: LoadedChunkEncoder, folder: str | os.PathLike[str]) -> LoadedChunkEncoder:
    """Opens what `quantize_chunk_encoder` wrote.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged, or was made from another encoder.
    """
    folder = Path(folder)
    if not (folder / _FACTS).exists():
        raise FileNotFoundError(f"No int8 chunk encoder in {folder}; make one with quantize_chunk_encoder.")
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        fingerprint, expected = facts["fingerprint"], facts.get("sha256")  # no hash in those of earlier versions
        if facts.keys() - {"fingerprint", "chunks", "sha256"} or not isinstance(fingerprint, str):
            raise ValueError(f"{_FACTS} has other fields than were written")
        if expected not in (None, found := _digest(folder)):
            raise ValueError(f"its network has the hash {found[:12]}…, not {expected[:12]}…")
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The int8 chunk encoder in {folder} is damaged ({error!r}). Delete the folder, and make it again with "
            "quantize_chunk_encoder."
        ) from error
    if not same_fingerprint(fingerprint, source.fingerprint, source.encoder.pooling, source.encoder.normalize):
        raise ValueError(
            f"The int8 chunk encoder in {folder} was made from weights {fingerprint[:12]}…, but {source.name!r} has "
            f"{source.fingerprint[:12]}…; make one from it in another folder."
        )
    return dataclasses.replace(source, encoder=Int8ChunkEncoder(folder, source))


def _full_chunks(source: LoadedChunkEncoder, texts: Iterable[str], rule: ChunkingRule, count: int) -> np.ndarray:
    """Full chunks from all parts of the first texts, with their special tokens: ``[count, chunk_size]``, or fewer."""
    documents = [tokenize_document(source.tokenizer, text).input_ids for text in itertools.islice(texts, _TEXTS)]
    rows: list[list[int]] = []
    for ids in documents:
        full = len(ids) // rule.capacity
        for chunk in np.unique(np.linspace(0, full - 1, min(full, -(-count // len(documents))), dtype=np.int64)):
            start = int(chunk) * rule.capacity
            rows.append([*rule.prefix_ids, *ids[start : start + rule.capacity].tolist(), *rule.suffix_ids])
    if not rows:
        raise ValueError(f"The calibration texts contain no chunk of {rule.capacity} tokens; give longer ones.")
    return np.asarray(rows, np.int64)
