"""Windows over documents of different lengths, against a loop."""

import pytest
import torch

from nextlevelbert.models.configuration_nextlevelbert import CLS, SEP

from ..toys.vectors import close


def by_windows(model, vectors):
    """Contextual vectors of one document, window by window: the same starts, and the mean where
    they overlap."""
    size, overlap = model.config.window()
    count = len(vectors)
    step = size - overlap
    starts = [0] if count <= size else [*range(0, count - size, step), count - size]
    total = torch.zeros(count, vectors.shape[1])
    times = torch.zeros(count, 1)
    firsts = []
    for start in starts:
        piece = vectors[start : start + size]
        table = model.special_embeddings.weight
        rows = torch.cat([table[CLS : CLS + 1], piece, table[SEP : SEP + 1]])
        hidden = model.encoder(inputs_embeds=rows[None]).last_hidden_state[0]
        total[start : start + size] += hidden[1:-1]
        times[start : start + size] += 1
        firsts.append(hidden[0])
    return total / times, torch.stack(firsts).mean(dim=0)


@torch.no_grad()
@pytest.mark.parametrize(
    ("size", "overlap", "positions"),
    [(8, 2, 4_096), (8, 7, 20), (3, 0, 20), (1, 0, 20), (5, 4, 4_096)],
)
@pytest.mark.filterwarnings("ignore:Document")  # one has no chunk
def test_ragged_batches_are_what_a_loop_over_windows_gives(
    toy, monkeypatch, size, overlap, positions
):
    """Documents of 0 to 40 chunks, in one pass of the encoder or in many."""
    monkeypatch.setattr(
        "nextlevelbert.models.modeling_nextlevelbert._POSITIONS_PER_PASS", positions
    )
    toy.config.max_chunks = size
    toy.config.window_overlap = overlap
    toy.config.pooling = "cls"
    draw = torch.Generator().manual_seed(size + overlap)
    lengths = [40, 0, *torch.randint(1, 41, (7,), generator=draw).tolist()]
    documents = [torch.randn(length, 32, generator=draw) for length in lengths]
    batch = torch.nn.utils.rnn.pad_sequence(documents, batch_first=True)
    mask = torch.arange(40) < torch.tensor(lengths)[:, None]

    output = toy(inputs_embeds=batch, attention_mask=mask)
    contextual, pooled = toy.contextualize(documents)

    assert not output.last_hidden_state[~mask].any()
    close(torch.cat(contextual), output.last_hidden_state[mask])
    for row, vectors in enumerate(documents):
        expected = torch.zeros(0, 32), torch.zeros(32)
        if len(vectors) > 0:
            expected = by_windows(toy, vectors)
        close((contextual[row], pooled[row]), expected)
        close(output.pooler_output[row], expected[1])
