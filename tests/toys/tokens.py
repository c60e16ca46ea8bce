"""Toy encoders and batches of token ids for ChunkBERT and BERT-AL."""

import torch
from transformers import (
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
    XLNetConfig,
)

CLS = 7
SIZE = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
SIZE |= {"intermediate_size": 48, "max_position_embeddings": 40}
_DISTILBERT = {"vocab_size": 200, "dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 48}
ENCODERS = {
    "bert": BertConfig(**SIZE),
    "roberta": RobertaConfig(**SIZE),
    "mpnet": MPNetConfig(**SIZE),
    "distilbert": DistilBertConfig(**_DISTILBERT, max_position_embeddings=40),
    "modernbert": ModernBertConfig(
        **SIZE, pad_token_id=0, cls_token_id=1, sep_token_id=2, local_attention=16
    ),
    "xlnet": XLNetConfig(vocab_size=200, d_model=32, n_layer=4, n_head=4, d_inner=48),
}


def batch(lengths=(37, 3, 8, 17), side="right"):
    """Documents of random ids, [CLS] in front and every seven tokens; and their ids and mask,
    padded on one side."""
    generator = torch.Generator().manual_seed(0)
    documents = [torch.randint(10, 200, (length,), generator=generator) for length in lengths]
    for document in documents:
        document[::7] = CLS
    longest = max(lengths)
    ids = torch.zeros(len(lengths), longest, dtype=torch.long)
    mask = torch.zeros(len(lengths), longest).long()
    for row, document in enumerate(documents):
        place = (
            slice(0, len(document)) if side == "right" else slice(longest - len(document), longest)
        )
        ids[row, place] = document
        mask[row, place] = 1
    return documents, ids, mask
