"""Toy models of CDLM's classes with weights that make attention matter, and batches for each of
them."""

import torch

from nextlevelbert import CdlmConfig, CdlmModel

CLS, PAD, MASK = 0, 1, 4
SIZE = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZE |= {"intermediate_size": 48, "pad_token_id": PAD}
LENGTHS = (37, 1, 20, 9)
# Positions with global attention, row by row: none, one, many, another number in every row,
# everything.
GLOBALS = {
    "none": [[], [], [], []],
    "one": [[0], [0], [0], [0]],
    "many": [[0, 3, 4, 5, 17, 30, 36], [0], [0, 1, 2, 3, 18, 19], [0, 4, 5, 6, 7, 8]],
    "different": [[36], [], [2, 3, 19], [0, 8]],
    "all": [list(range(length)) for length in LENGTHS],
}
# Small ones are taken in blocks; with 24 and any global token blocks would have more keys than the
# square.
WINDOWS = {"small": [4, 4, 4], "different": [4, 12, 6], "half": [24, 24, 24], "wide": [80, 80, 80]}


def draw(model, std=0.2):
    """Weights that make attention far from uniform, with projections for global attention of their
    own."""
    torch.manual_seed(3)
    for name, weight in model.named_parameters():
        scale = name.lower().replace("_", "").endswith("layernorm.weight")
        torch.nn.init.normal_(weight, mean=1.0 if scale else 0.0, std=std)
    return model.eval()


def tiny(cls=CdlmModel, attention="sdpa", **values):
    defaults = {
        "max_position_embeddings": 66,
        "attention_window": 8,
        "mask_token_id": MASK,
        "classifier_dropout": 0.0,
    }
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = CdlmConfig(**{**SIZE, **defaults, **dropout, "pair_scorer_hidden_size": 24, **values})
    model = draw(cls(config))
    model.set_attn_implementation(attention)
    return model


def batch(lengths=LENGTHS, seed=0):
    """Sequences of random words, [CLS] first, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(10, 100, mask.shape, generator=generator)
    ids[:, 0] = CLS
    return ids.masked_fill(mask == 0, PAD), mask


def globals_of(places, length):
    mask = torch.zeros(len(places), length, dtype=torch.long)
    for row, positions in enumerate(places):
        mask[row, positions] = 1
    return mask


def masked_batch():
    ids, mask = batch()
    labels = torch.full_like(ids, -100)
    for row, position in ((0, 2), (0, 30), (2, 5), (3, 8)):
        labels[row, position] = ids[row, position]
        ids[row, position] = MASK
    labels[0, 11] = 42  # one that is not masked
    return ids, mask, labels


# Mentions: three in the first row of the batch, two in the others.

SPANS = torch.tensor(
    [[[3, 5], [20, 21], [30, 34]], [[0, 1], [0, 1], [-1, -1]], [[6, 9], [18, 20], [-1, -1]]]
)
PAIRS = torch.tensor([[[0, 1], [2, 0]], [[0, 1], [-1, -1]], [[1, 0], [-1, -1]]])


def mentions_batch():
    ids, mask = batch()
    return ids[:3], mask[:3]


def question_batch():
    """Two questions of 37 and 20 tokens; three sentences and two titles in the longer one."""
    ids, mask = batch()
    return {
        "input_ids": ids[[0, 2]],
        "attention_mask": mask[[0, 2]],
        "global_attention_mask": globals_of([[0, 1, 2, 9, 12, 25], [0, 6, 9]], 37),
        "sentence_index": torch.tensor([[12, 19, 30], [9, -1, -1]]),
        "paragraph_index": torch.tensor([[9, 25], [6, -1]]),
        "context_mask": globals_of([range(9, 36), range(6, 19)], 37),
    }


ANSWERS = {
    "start_positions": torch.tensor([[10, 14, 33], [8, -1, -1]]),
    "end_positions": torch.tensor([[11, 14, 35], [8, -1, -1]]),
    "type_labels": torch.tensor([0, 2]),
    "sentence_labels": torch.tensor([[1, 0, -100], [1, -100, -100]]),
    "paragraph_labels": torch.tensor([[1, 0], [1, -100]]),
}
