"""Feeding and computing at the same time: how long `encode` takes beside the slower of the two.

    python -m benchmarks.speed.feeding

Feeding is tokenising and splitting; computing is the rest. With the shipped static encoder, both
need the cores. In place of a device, an encoder sleeps for as long as feeding takes; its tokenizer
is byte-level BPE, because BERT's words are looked up too fast to hold a device up. Ratios need idle
cores. The floor is the slower of the two, or the CPU-seconds of both divided by the cores.
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from functools import partial
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BertConfig, PreTrainedTokenizerFast

from benchmarks.common import measuring
from nextlevelbert import NextLevelBertModel, load_chunk_encoder, static_checkpoint
from nextlevelbert.models.chunk_encoder import ChunkEncoder, LoadedChunkEncoder, chunk_bar
from nextlevelbert.models.prompts import tokenize_and_split
from nextlevelbert.models.tokenizing import groups_by_length

DOCUMENTS = 50
CHARACTERS = 200_000
HIDDEN_SIZE = 32
ROUNDS = 3


class SleepingEncoder(ChunkEncoder):
    """Sleeps in place of a device."""

    seconds_per_chunk = 0.0

    def encode(self, input_ids: np.ndarray, boundaries: np.ndarray, *_: Any, **__: Any) -> Any:
        chunks = len(boundaries) - 1
        time.sleep(chunks * self.seconds_per_chunk)
        return torch.ones(chunks, HIDDEN_SIZE)


def sleeping_model(texts: list[str]) -> tuple[Any, LoadedChunkEncoder]:
    """Makes a model, and an encoder for it that sleeps for as long as feeding takes."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8_000, special_tokens=["<pad>", "<unk>"], show_progress=False
    )
    backend.train_from_iterator(texts[:2], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", model_max_length=10**9
    )
    encoder = SleepingEncoder(BertConfig(hidden_size=HIDDEN_SIZE, num_hidden_layers=0))
    loaded = LoadedChunkEncoder(encoder, tokenizer, "asleep", fingerprint=encoder.fingerprint())
    model: Any = NextLevelBertModel.from_chunk_encoder(loaded, num_hidden_layers=0, pooling="plain")
    start = time.perf_counter()
    chunks = sum(plan.chunks for plan in model.plan(texts))
    encoder.seconds_per_chunk = (time.perf_counter() - start) / chunks
    return model, loaded


def measure(model: Any, loaded: LoadedChunkEncoder, texts: list[str]) -> list[str]:
    """Measures feeding, computing and both, and returns the cells of a row."""
    rule = model.config.chunking_rule()
    split = partial(tokenize_and_split, model.tokenizer, rule=rule, splitter=None)
    groups = list(map(split, groups_by_length(texts)))

    def compute() -> None:
        with chunk_bar("encoding", is_shown=False) as bar:
            for group in groups:
                model._encode_group(group, loaded.encoder, rule, tokens_per_batch=None, bar=bar)

    runs = {
        "feeding": lambda: model.plan(texts),
        "computing": compute,
        "both": lambda: model.encode(texts, chunk_encoder=loaded),
    }
    seconds, _ = measuring.interleaved(runs, ROUNDS)
    slower = max(seconds["feeding"].wall, seconds["computing"].wall)
    cpu = seconds["feeding"].cpu + seconds["computing"].cpu
    floor = max(slower, cpu / (os.cpu_count() or 1))
    cells = [f"{took.wall:.2f} / {took.cpu:.2f}" for took in seconds.values()]
    return [*cells, f"{seconds['both'].wall / slower:.2f}", f"{floor / slower:.2f}"]


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.parse_args()
    measuring.print_header("float32", f"medians of {ROUNDS} rounds, wall / CPU seconds")
    text = measuring.long_text(DOCUMENTS * CHARACTERS)
    texts = [text[start : start + CHARACTERS] for start in range(0, len(text), CHARACTERS)]
    loaded = load_chunk_encoder(str(static_checkpoint()))
    shipped = NextLevelBertModel.from_pretrained(static_checkpoint())
    head = ["encoder", "feeding", "computing", "both: `encode`", "times the slower", "floor"]
    rows = [
        ["nextlevelbert-static", *measure(shipped, loaded, texts)],
        ["sleeping device", *measure(*sleeping_model(texts), texts)],
    ]
    measuring.print_table(head, rows)


if __name__ == "__main__":
    main()
