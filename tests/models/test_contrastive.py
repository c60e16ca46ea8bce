"""The residual document vector and contrastive learning over segments, whitened or not."""

import math

import pytest
import torch
from torch.nn import functional as F
from transformers.models.clip.modeling_clip import image_text_contrastive_loss

from nextlevelbert import (
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertModel,
)
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP

from ..toys.vectors import close, toy_config, unit, vectors_of, whitened


def shaken(model):
    """A model in which every number counts; whitening is no symmetric matrix, so that a
    transposition shows."""
    torch.manual_seed(6)
    for name, tensor in model.state_dict().items():
        if "layer_norm" not in name.lower() and tensor.is_floating_point():
            tensor.copy_(0.3 * torch.randn(tensor.shape))
    return model.eval()


def residual(cls=NextLevelBertModel, whiten=True, **values):
    torch.manual_seed(2)
    model = cls(
        toy_config(
            pooling="residual", whiten_chunks=whiten, **{"include_chunk_encoder": False, **values}
        )
    )
    if whiten:
        shaken(model.base_model.whitening)
    return model.eval()


@pytest.mark.parametrize("whiten", [False, True])
def test_an_untrained_model_gives_the_mean_of_its_chunks(whiten):
    model = residual(whiten=whiten)
    vectors = torch.randn(3, 6, 32)
    chunks = vectors
    if whiten:
        chunks = whitened(model.base_model.whitening, vectors)

    close(vectors_of(model, vectors), unit(chunks.mean(dim=1)), atol=1e-6)
    # Plain ones, as everywhere.
    assert torch.equal(model(inputs_embeds=vectors).chunk_vectors, vectors)


def test_plain_pooling_is_the_mean_and_has_no_weights(toy_encoder_path):
    """Chunks are in no other's vector, by every route; what has nothing to train is refused."""
    torch.manual_seed(2)
    without = {**toy_config().encoder_config.to_dict(), "num_hidden_layers": 0}
    config = toy_config(
        pooling="plain", encoder_config=without, whiten_chunks=True, include_chunk_encoder=False
    )
    model = shaken(NextLevelBertModel(config))
    vectors = torch.randn(2, 19, 32)  # 8 in a window

    names = {name.partition(".")[0] for name in model.state_dict()}
    assert names == {"special_embeddings", "whitening"}
    output = model(inputs_embeds=vectors)
    close(output.last_hidden_state, whitened(model.base_model.whitening, vectors))
    close(
        output.pooler_output,
        unit(whitened(model.base_model.whitening, vectors).mean(dim=1)),
        atol=1e-6,
    )
    few = vectors[:, :6]
    mean = unit(whitened(model.base_model.whitening, few).mean(dim=1))
    close(vectors_of(model, few), mean, atol=1e-6)
    exported = torch.export.export(model, (), {"inputs_embeds": few}).module()
    close(exported(inputs_embeds=few).pooler_output, mean, atol=1e-6)
    packed = F.pad(few, (0, 0, 1, 1))
    special_ids = torch.tensor([[CLS, *[NOT_SPECIAL] * 6, SEP]] * 2)
    by_places = model(inputs_embeds=packed, special_ids=special_ids)
    close(by_places.pooler_output, mean, atol=1e-6)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, pooling="plain")
    assert model.config.encoder_config.num_hidden_layers == 0
    for refused in (NextLevelBertForMaskedVectorModeling, NextLevelBertForContrastiveLearning):
        with pytest.raises(ValueError, match="plain"):
            refused(config)


@torch.no_grad()
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("chunks", [6, 19])  # 8 in a window
def test_a_document_vector_is_the_sum_of_both_projections(trained, chunks):
    """Untrained and with a start of one: of both means as they are. The encoder reads whitened
    chunks, too."""
    model = residual(residual_start=1.0)
    vectors = torch.randn(2, chunks, 32)
    a = c = torch.eye(32)
    if trained:
        shaken(model)
        a = model.residual_pooling.plain.weight.detach()
        c = model.residual_pooling.contextual.weight.detach()
    without = residual(whiten=False)
    without.load_state_dict(model.state_dict(), strict=False)
    contextual = without(
        inputs_embeds=whitened(model.base_model.whitening, vectors)
    ).last_hidden_state

    output = model(inputs_embeds=vectors)

    close(output.last_hidden_state, contextual)
    plain = unit(whitened(model.base_model.whitening, vectors).mean(dim=1))
    contextual = unit(contextual.mean(dim=1))
    close(output.pooler_output, unit(plain @ a.T + contextual @ c.T), atol=1e-6)
    assert (output.pooler_output - plain).abs().max() > 0.01
    model.config.long_documents = "truncate"  # what is cut off is in neither mean
    close(vectors_of(model, vectors), vectors_of(model, vectors[:, :8]))


def test_batch_neighbours_packing_and_empty_documents_change_no_document_vector():
    model = shaken(residual())
    lengths = [3, 8, 0, 5]
    vectors = torch.randn(4, 8, 32)
    mask = torch.arange(8) < torch.tensor(lengths)[:, None]

    with pytest.warns(UserWarning, match=r"Document\(s\) 2 contain no token"):
        together = vectors_of(model, vectors, attention_mask=mask)
    assert (together[2] == 0).all()
    rows = [[CLS, *[NOT_SPECIAL] * length, SEP, *[PAD] * (8 - length)] for length in lengths]
    packed = vectors_of(model, F.pad(vectors, (0, 0, 1, 1)), special_ids=torch.tensor(rows))
    for row in (0, 1, 3):
        alone = vectors_of(model, vectors[row : row + 1, : lengths[row]])[0]
        close(together[row], alone)
        close(packed[row], alone)
    assert (together[0] - together[3]).abs().max() > 0.01


def segments(pairs=4, chunks=6):
    torch.manual_seed(7)
    special_ids = torch.full((pairs, 2, chunks + 2), NOT_SPECIAL)
    special_ids[..., 0] = CLS
    special_ids[..., -1] = SEP
    vectors = torch.randn(pairs, 2, chunks + 2, 32)
    return {
        "inputs_embeds": vectors,
        "special_ids": special_ids,
        "document_ids": torch.arange(pairs),
    }


@torch.no_grad()
def test_scores_and_loss_of_a_batch_of_pairs():
    model = shaken(residual(NextLevelBertForContrastiveLearning))
    batch = segments()
    model.logit_scale.data.fill_(math.log(7))
    documents = vectors_of(model.model, batch["inputs_embeds"][:, :, 1:-1].flatten(0, 1)).unflatten(
        0, (4, 2)
    )
    expected = 7 * documents[:, 0] @ documents[:, 1].T

    output = model(**batch)

    close(output.scores, expected)
    close(output.loss, image_text_contrastive_loss(expected))
    batch["document_ids"] = torch.tensor([0, 1, 1, 2])
    expected[1, 2] = expected[
        2, 1
    ] = -torch.inf  # other segments of a document are in no denominator
    close(model(**batch).loss, image_text_contrastive_loss(expected))


@torch.no_grad()
def test_masked_vectors_are_predicted_as_whitened_ones():
    model = shaken(residual(NextLevelBertForMaskedVectorModeling))
    batch = segments()
    batch = {name: values.flatten(0, 1) for name, values in batch.items() if name != "document_ids"}
    positions = torch.zeros(8, 8, dtype=torch.bool)
    labels = batch["inputs_embeds"].clone()
    positions[::2, 2] = positions[1::2, 5] = positions[0, 3] = True
    batch["special_ids"][::2, 2] = MASK

    output = model(**batch, mask_positions=positions, labels=labels)

    expected = whitened(model.base_model.whitening, labels[positions])
    close(output.targets, expected, atol=1e-6)
    close(output.loss, F.smooth_l1_loss(output.predictions, expected), atol=1e-6)
    assert output.loss > 0.01
