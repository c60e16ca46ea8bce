"""Pretraining steps for `gpu_throughput.py`: a batch in as many pieces as memory asks for, and the loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from nextlevelbert import (
    DataCollatorForVectorMasking,
    NextLevelBertForMaskedVectorModeling,
    PackedVectorDataset,
    VectorCorpus,
)

LENGTH = 512
Clock = Callable[[torch.device], float]


class Training:
    """A model of the encoder's size with its optimiser, on a device."""

    def __init__(self, encoder: str, device: torch.device) -> None:
        model: Any = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(encoder, include_chunk_encoder=False)
        self.model, self.device = model.to(device).train(), device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def forward_backward(self, batch: dict[str, torch.Tensor], piece: int) -> None:
        """Adds up the gradients of a batch, `piece` sequences at a time."""
        size = len(batch["special_ids"])
        for start in range(0, size, piece):
            part = {
                name: values[start : start + piece].to(self.device, non_blocking=True)
                for name, values in batch.items()
            }
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.model(**part).loss
            (loss * len(part["special_ids"]) / size).backward()

    def step(self, batch: dict[str, torch.Tensor], piece: int) -> None:
        self.forward_backward(batch, piece)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def collated(corpus: VectorCorpus, batch: int, steps: int, workers: int, device: torch.device) -> DataLoader:
    """Batches of sequences drawn with replacement, so that a small corpus gives as many as are asked for."""
    dataset = PackedVectorDataset(corpus, LENGTH)
    return DataLoader(
        dataset,
        batch,
        sampler=RandomSampler(dataset, replacement=True, num_samples=batch * steps),
        collate_fn=DataCollatorForVectorMasking(),
        num_workers=workers,
        pin_memory=device.type == "cuda",
    )


def ready_rate(
    encoder: str,
    corpus: VectorCorpus,
    device: torch.device,
    size: int,
    operations: Callable[[Callable[[], Any]], int],
    clock: Clock,
) -> tuple[float, float, int]:
    """Steps over one batch that lies on the device.

    Returns:
        Positions a second, operations a position, and the sequences of one piece: the batch, or the largest
        half of a half of it that fits.
    """
    training = Training(encoder, device)
    [batch] = list(collated(corpus, size, 1, 0, device))
    batch = {name: values.to(device) for name, values in batch.items()}
    few = {name: values[:2] for name, values in batch.items()}
    work = operations(lambda: training.forward_backward(few, 2)) / few["special_ids"].numel()
    piece = size
    while True:
        try:
            training.step(batch, piece)
            break
        except torch.OutOfMemoryError:
            if piece == 1:
                raise
        piece //= 2  # outside the handler, whose traceback holds on to the tensors of the step
        training.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    start = clock(device)
    for _ in range(5):
        training.step(batch, piece)
    return 5 * batch["special_ids"].numel() / (clock(device) - start), work, piece


def loader_rate(
    encoder: str,
    corpus: VectorCorpus,
    device: torch.device,
    size: int,
    piece: int,
    steps: int,
    workers: int,
    clock: Clock,
) -> float:
    """Positions a second of steps fed by the loader, once the batches that it had ready are used up."""
    training = Training(encoder, device)
    ready = 2 * workers + 1  # what the workers read ahead, and the step that warms up
    if steps <= ready:
        raise ValueError(f"--steps must be above {ready} with {workers} workers, got {steps}.")
    start, positions = 0.0, 0
    for number, batch in enumerate(collated(corpus, size, steps, workers, device)):
        if number == ready:
            start, positions = clock(device), 0
        training.step(batch, piece)
        positions += batch["special_ids"].numel()
    return positions / (clock(device) - start)
