"""Tokenising while a device computes: an encoder that sleeps stands for the device.

    python -m benchmarks.speed.feeding

The tokenizer is byte-level BPE (RoBERTa's kind), trained on Python's manual, because BERT's words
are looked up too fast to hold a device up. The encoder sleeps for as long as tokenising takes: one
after the other, the two would take twice as long. Both goals need two idle cores: at most 1.35
times the slower side by the clock, and 1.5 cores for tokenising alone.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BertConfig, PreTrainedTokenizerFast

from benchmarks.common import measuring
from nextlevelbert import ChunkingRule, NextLevelBertModel
from nextlevelbert.models.chunk_encoder import ChunkEncoder, LoadedChunkEncoder

HIDDEN_SIZE = 32


class SleepingEncoder(ChunkEncoder):
    """Sleeps in place of a device.

    Attributes:
        seconds_per_chunk: time that a chunk takes.
    """

    seconds_per_chunk = 0.0

    def encode(
        self,
        input_ids: np.ndarray,
        boundaries: np.ndarray,
        rule: ChunkingRule,
        tokens_per_batch: int | None = None,
        bar: Any = None,
    ) -> torch.Tensor:
        chunks = len(boundaries) - 1
        time.sleep(chunks * self.seconds_per_chunk)
        return torch.ones(chunks, HIDDEN_SIZE)


def bpe_tokenizer(text: str) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE tokenizer."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8_000,
        special_tokens=["<pad>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([text], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", model_max_length=10**9
    )


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=40, help="number of documents")
    parser.add_argument("--characters", type=int, default=250_000, help="length of each document")
    args = parser.parse_args()
    measuring.print_header("float32")
    texts = [measuring.long_text(args.characters)] * args.documents
    encoder = SleepingEncoder(BertConfig(hidden_size=HIDDEN_SIZE, num_hidden_layers=0))
    source = LoadedChunkEncoder(
        encoder, bpe_tokenizer(texts[0][:500_000]), name="asleep", fingerprint=encoder.fingerprint()
    )
    model: Any = NextLevelBertModel.from_chunk_encoder(
        source, chunk_size=256, num_hidden_layers=0, pooling="plain"
    )
    model.plan(texts[:1])

    start, start_cpu = time.perf_counter(), time.process_time()
    chunks = sum(plan.chunks for plan in model.plan(texts))
    tokenising = time.perf_counter() - start
    cores = (time.process_time() - start_cpu) / tokenising
    encoder.seconds_per_chunk = tokenising / chunks
    start = time.perf_counter()
    # The model holds an encoder of its own, which would compute.
    model.encode(texts, chunk_encoder=source)
    both = time.perf_counter() - start

    rows = [
        ["tokenising alone", f"{tokenising:.2f}", "1.00", f"{cores:.2f}"],
        ["sleeping alone", f"{tokenising:.2f}", "1.00", ""],
        ["`encode`", f"{both:.2f}", f"{both / tokenising:.2f}", ""],
    ]
    measuring.print_table(["", "seconds", "times the slower side", "cores"], rows)


if __name__ == "__main__":
    main()
