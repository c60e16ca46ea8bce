"""A BERT with a longer position table: the new rows are random (paper of BERT-AL, section "Experiment setting")."""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch

from ...models.modeling_bert_al import BertAlForExtractiveSummarization
from ...models.pretrained import usable_positions


def with_extended_positions(
    name_or_path: str | PathLike[str], pretrained: int, total: int
) -> BertAlForExtractiveSummarization:
    """A summarising model that reads `total` tokens at once, of which the encoder has learnt `pretrained` positions.

    The paper's "Baseline-2": one segment, full attention, no recurrence.

    Args:
        name_or_path: folder or Hub name of the encoder.
        pretrained: rows of its position table that are kept, the paper's l_BERT.
        total: positions of the new table; the rest is drawn from N(0, initializer_range).

    Raises:
        ValueError: for an encoder without a table of positions, or fewer rows than are to be kept.
    """
    source = BertAlForExtractiveSummarization.from_encoder(name_or_path, segment_length=pretrained, recurrence="none")
    encoder: Any = source.model.encoder
    table = [name for name, _ in encoder.named_parameters() if name.endswith("position_embeddings.weight")]
    usable = usable_positions(encoder.config)
    if len(table) != 1 or usable is None:
        raise ValueError(
            f"{str(name_or_path)!r} is a {encoder.config.model_type} without a position table to extend; use BERT, "
            "RoBERTa, MPNet or similar."
        )
    total = max(total, pretrained)
    unused = encoder.config.max_position_embeddings - usable  # RoBERTa's table starts after the padding id
    longer = {**encoder.config.to_dict(), "max_position_embeddings": total + unused}
    config = type(source.config).from_dict({**source.config.to_dict(), "encoder_config": longer})
    config.segment_length, config.tokens_at_once = total, None
    model = BertAlForExtractiveSummarization(config)
    weights = source.state_dict()
    rows = weights.pop(f"model.encoder.{table[0]}")[: pretrained + unused]
    model.load_state_dict(weights, strict=False)  # all but the table
    with torch.no_grad():
        model.get_parameter(f"model.encoder.{table[0]}")[: len(rows)] = rows
    model.tokenizer = source.tokenizer
    return model.eval()
