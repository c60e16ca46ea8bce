"""HATE against its paper worked by hand, pieces of transformers and torch, and the contracts of the house."""

from __future__ import annotations

import logging
import math
import re

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
    DistilBertConfig,
    LongformerConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

from nextlevelbert import (
    DataCollatorForVectorMasking,
    DocumentVectorDataset,
    HateConfig,
    HateForMaskedSentencePrediction,
    HateForSequenceClassification,
    HateModel,
    PackedVectorDataset,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.data.documents import Document
from nextlevelbert.models.chunking import ChunkingRule
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP
from nextlevelbert.models.losses import masked_vector_loss, p_norm
from nextlevelbert.models.modeling_hate import sinusoids

CLASSES = [HateModel, HateForMaskedSentencePrediction, HateForSequenceClassification]
BOTTLENECK = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


def toy_config(hidden_size=32, **overrides) -> HateConfig:
    """Sentence vectors of 32 dimensions, a document model of 32 or less, 8 sentences in a window."""
    size = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 9}
    upper = BertConfig(hidden_size=hidden_size, intermediate_size=2 * hidden_size, hidden_dropout_prob=0.0, **size)
    lower = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    values = {
        "encoder_config": upper.to_dict(),
        "chunk_encoder_config": BertConfig(**lower, max_position_embeddings=64).to_dict(),
        "chunk_size": 8,
        "chunking": "fixed",
        **overrides,
    }
    return HateConfig(**values)


def toy(cls=HateModel, seed=3, **overrides):
    torch.manual_seed(seed)
    return cls(toy_config(**overrides)).eval()


def unit(*shape):
    return F.normalize(torch.randn(*shape), dim=-1)


def close(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=1e-5)


# --- the paper, by hand


def test_the_loss_of_three_masked_sentences_by_hand():
    """Ŝ = ln 2 · I and L = I: every row of softmax(Ŝ Lᵀ) is 1/2 at its own place and 1/4 at the two others."""
    predictions, targets = math.log(2) * torch.eye(3), torch.eye(3)
    by_hand = math.sqrt(0.5**2 + 0.25**2 + 0.25**2)  # the distance of (1/2, 1/4, 1/4) from (1, 0, 0)
    close(p_norm(predictions, targets).mean(), torch.tensor(by_hand))
    close(p_norm(predictions, targets, p=1.0).mean(), torch.tensor(1.0))
    # Every prediction certain of its neighbour: (0, 1, 0) from (1, 0, 0).
    close(p_norm(100 * torch.eye(3).roll(1, 0), targets).mean(), torch.tensor(math.sqrt(2)))


def test_the_loss_is_torch_s_pairwise_distance():
    torch.manual_seed(0)
    predictions, targets = torch.randn(7, 5), torch.randn(7, 5)
    chosen = (predictions @ targets.T).softmax(-1)
    for p in (1.0, 2.0, 3.0):
        close(p_norm(predictions, targets, p=p), F.pairwise_distance(chosen, torch.eye(7), p=p, eps=0.0))


@pytest.mark.parametrize(
    ("narrow", "widths"),
    # step = floor((128 - H) / 2) is 32, 48, 56.
    [
        (64, [128, 128, 96, 64]),
        (32, [128, 128, 80, 32]),
        (16, [128, 128, 72, 16]),
        (128, [128]),
        (127, [128, 127, 127, 127]),
    ],
)
def test_the_widths_of_the_autoencoder(narrow, widths):
    size = {"num_hidden_layers": 1, "num_attention_heads": 1}
    config = HateConfig(
        encoder_config=BertConfig(hidden_size=narrow, **size).to_dict(),
        chunk_encoder_config=BertConfig(hidden_size=128, **size).to_dict(),
        include_chunk_encoder=False,
    )
    assert config.bottleneck_widths() == widths
    model = HateForMaskedSentencePrediction(config)
    layers = [m for m in model.model.encoder.reduction if isinstance(m, torch.nn.Linear)]
    assert [layer.in_features for layer in layers] == widths[:-1]
    assert [layer.out_features for layer in layers] == widths[1:]
    decoder = [m for m in model.head[0] if isinstance(m, torch.nn.Linear)]
    assert [layer.out_features for layer in decoder] == widths[::-1][1:]
    # GELU between the layers, none at the end.
    kinds = [type(m).__name__ for m in model.head[0]]
    assert kinds == (["HateBottleneckLinear", "GELU"] * 3)[:5] * (len(widths) > 1)


def test_sinusoids_by_hand_and_as_a_library_makes_them():
    rows = sinusoids(torch.tensor([0, 1, 50]), 4)
    close(rows[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))
    close(rows[1], torch.tensor([math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]))
    close(rows[2], torch.tensor([math.sin(50), math.cos(50), math.sin(0.5), math.cos(0.5)]))
    table = torch.empty(600, 32)
    create_sinusoidal_embeddings(n_pos=600, dim=32, out=table)
    close(sinusoids(torch.arange(600), 32), table, atol=1e-4)
    assert sinusoids(torch.arange(3), 7).shape == (3, 7)


def test_the_document_model_is_transformers_bert_with_sinusoids_in_its_table():
    model = toy()
    bert = BertModel(model.config.encoder_config, add_pooling_layer=False).eval()
    state = {f"{name}": tensor for name, tensor in model.encoder.layers.state_dict().items()}
    missing, unexpected = bert.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) == {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"}
    table = torch.empty(9, 32)
    create_sinusoidal_embeddings(n_pos=9, dim=32, out=table)
    bert.embeddings.position_embeddings.weight.data.copy_(table)
    sentences = unit(1, 5, 32)
    fixed = model.special_embeddings.weight[CLS].expand(1, 1, 32)
    expected = bert(inputs_embeds=math.sqrt(32) * torch.cat([fixed, sentences], dim=1)).last_hidden_state
    close(model(inputs_embeds=sentences).last_hidden_state, expected[:, 1:])
    close(toy(pooling="cls")(inputs_embeds=sentences).pooler_output, expected[:, 0])


@pytest.mark.parametrize("pooling", ["cls", "mean", "sum"])
def test_cls_mean_and_sum_with_padding(pooling):
    model = toy(pooling=pooling, hidden_size=16)
    torch.manual_seed(0)
    vectors = unit(2, 6, 32)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    output = model(inputs_embeds=vectors, attention_mask=mask)
    close(model(inputs_embeds=vectors[1:, :3]).pooler_output[0], output.pooler_output[1])
    if pooling != "cls":
        rows = output.last_hidden_state[1, :3]
        close(output.pooler_output[1], rows.sum(0) if pooling == "sum" else rows.mean(0))
    assert (output.last_hidden_state[1, 3:] == 0).all()
    assert output.last_hidden_state.shape == (2, 6, 16)
    assert output.chunk_vectors.shape == (2, 6, 32)


# --- sequences, masks, predictions


@pytest.fixture(scope="module")
def corpus(minilm, toy_encoder_path, tmp_path_factory) -> VectorCorpus:
    source = load_chunk_encoder(toy_encoder_path)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 64, "sentences", source.max_chunk_size)
    texts = [f"The {word} was here. It was {word} number {n}, they said. " * (3 + n) for n, word in
             enumerate(["whale", "train", "bread", "star", "ship", "crown", "horse", "letter"])]  # fmt: skip
    documents = [Document(str(number), text) for number, text in enumerate([*texts, " "])]
    return encode_corpus(documents, source, rule, tmp_path_factory.mktemp("sentences"), progress=False)


@pytest.mark.parametrize("length", [2, 5, 9, 64])
def test_a_sequence_holds_one_document_or_an_even_piece_of_one(corpus, length):
    dataset = DocumentVectorDataset(corpus, length)
    rows = [dataset[index] for index in range(len(dataset))]
    assert all(row["special_ids"][0] == CLS for row in rows)
    assert all((row["special_ids"][1:] == NOT_SPECIAL).all() for row in rows)
    assert max(len(row["special_ids"]) for row in rows) <= length
    assert torch.equal(torch.cat([row["inputs_embeds"][1:] for row in rows]), corpus.vectors(0, corpus.num_chunks))
    at = 0
    for document in corpus:
        pieces = -(-len(document.vectors) // (length - 1))
        sizes = [len(row["special_ids"]) - 1 for row in rows[at : at + pieces]]
        assert sum(sizes) == len(document.vectors)
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        at += pieces
    assert at == len(rows)
    with pytest.raises(IndexError, match="is not among"):
        dataset[len(dataset)]
    with pytest.raises(ValueError, match="give at least 2"):
        DocumentVectorDataset(corpus, 1)


def test_masks_fall_on_real_sentences_in_the_paper_s_shares(corpus):
    dataset = DocumentVectorDataset(corpus, 12)
    collate = DataCollatorForVectorMasking()
    real = {row.numpy().tobytes() for row in corpus.vectors(0, corpus.num_chunks)}
    counts = {"real": 0, "selected": 0, "masked": 0, "replaced": 0}
    for epoch in range(300):
        dataset.epoch = epoch
        batch = collate([dataset[index] for index in range(len(dataset))])
        special, selected = batch["special_ids"], batch["mask_positions"]
        assert not (selected & ((special == CLS) | (special == PAD))).any()
        assert not (selected[:, 0]).any()
        masked = special == MASK
        assert (masked <= selected).all()
        other = selected & ~masked & (batch["inputs_embeds"] != batch["labels"]).any(-1)
        if epoch == 0:
            assert {row.numpy().tobytes() for row in batch["inputs_embeds"][other]} <= real
        counts["real"] += int(((special == NOT_SPECIAL) | masked).sum())
        counts["selected"] += int(selected.sum())
        counts["masked"] += int(masked.sum())
        counts["replaced"] += int(other.sum())
    deviation = 4 / math.sqrt(counts["selected"])
    assert abs(counts["selected"] / counts["real"] - 0.15) < 4 * math.sqrt(0.15 * 0.85 / counts["real"])
    assert abs(counts["masked"] / counts["selected"] - 0.8) < 0.4 * deviation
    assert 0.05 < counts["replaced"] / counts["selected"] < 0.1 + 0.3 * deviation  # an equal vector may be drawn


def test_fixed_vectors_are_random_saved_and_never_trained(tmp_path):
    model = toy(HateForMaskedSentencePrediction, hidden_size=8)
    table = model.model.special_embeddings.weight
    assert (table[PAD] == 0).all()
    assert 0.5 < table[[CLS, MASK]].norm(dim=-1).mean() < 1.5  # as long as the vectors that they stand among
    assert not torch.equal(table[CLS], table[MASK])
    assert "special_embeddings.weight" not in dict(model.model.named_parameters())
    model.save_pretrained(tmp_path)
    close(AutoModel.from_pretrained(tmp_path).special_embeddings.weight, table, atol=0)


def batch_of(rows=3, length=6, masked=2):
    torch.manual_seed(5)
    special_ids = torch.full((rows, length), NOT_SPECIAL)
    special_ids[:, 0] = CLS
    positions = torch.zeros(rows, length, dtype=torch.bool)
    positions.flatten()[torch.arange(masked) * 4 + 1] = True
    special_ids[positions] = MASK
    vectors = unit(rows, length, 32)
    return {
        "inputs_embeds": vectors,
        "special_ids": special_ids,
        "mask_positions": positions,
        "labels": vectors.clone(),
    }


@pytest.mark.parametrize("hidden_size", [32, 8])
@pytest.mark.parametrize("loss", ["p_norm", "cross_entropy"])
def test_masked_sentences_are_predicted_in_their_own_space(loss, hidden_size):
    model = toy(HateForMaskedSentencePrediction, loss=loss, hidden_size=hidden_size)
    batch = batch_of()
    output = model(**batch)
    assert output.predictions.shape == output.targets.shape == (2, 32)
    close(output.predictions.mean(-1), torch.zeros(2))  # as a LayerNorm leaves them
    if loss == "p_norm":
        chosen = (output.predictions @ output.targets.T).softmax(-1)
        close(output.loss, F.pairwise_distance(chosen, torch.eye(2), eps=0.0).mean())
    other = dict(batch, inputs_embeds=torch.where(batch["mask_positions"].unsqueeze(-1), 9.0, batch["inputs_embeds"]))
    close(model(**other).predictions, output.predictions)  # what stood at a [MASK] is not seen
    model.train()
    model(**batch).loss.backward()
    untouched = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert not untouched


@pytest.mark.parametrize("loss", ["p_norm", "cross_entropy"])
def test_it_learns_to_tell_masked_sentences_apart_by_their_context(loss):
    """Each sequence is one sentence over and over, so that its neighbours tell what is masked."""
    model = toy(HateForMaskedSentencePrediction, loss=loss).train()
    sentences = unit(6, 1, 32).expand(6, 6, 32)
    special_ids = torch.full((6, 6), NOT_SPECIAL)
    special_ids[:, 0], special_ids[:, 3] = CLS, MASK
    batch = {"inputs_embeds": sentences, "special_ids": special_ids, "mask_positions": special_ids == MASK}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    history = []
    for _ in range(60):
        output = model(**batch, labels=sentences)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        history.append(float(output.loss.detach()))
    assert history[-1] < 0.4 * history[0]
    assert ((output.predictions @ output.targets.T).argmax(-1) == torch.arange(6)).all()


def test_fewer_than_two_masked_sentences_are_counted_and_teach_nothing(caplog):
    model = toy(HateForMaskedSentencePrediction).train()
    with caplog.at_level(logging.WARNING):
        for masked in [1, 0] + [1] * 9:
            output = model(**batch_of(masked=masked))
            assert float(output.loss.detach()) == pytest.approx(0.0, abs=1e-6)
            output.loss.backward()
    assert model.skipped_batches == 11
    assert all(p.grad is None or float(p.grad.abs().max()) < 1e-6 for p in model.parameters())
    told = [record.getMessage() for record in caplog.records]
    assert [re.search(r"\((\d+) so far\)", message)[1] for message in told] == ["1", "10"]
    assert told[0].startswith("1 masked vector(s) in a batch; loss='p_norm' retrieves each among the others")
    caplog.clear()
    model.eval()
    for _ in range(3):
        model(**batch_of(masked=1))
    assert model.skipped_batches == 11
    assert [record.getMessage()[:46] for record in caplog.records] == [
        "1 masked vector(s) in an evaluation batch; los"
    ]


@pytest.mark.parametrize("loss", ["p_norm", "cross_entropy"])
def test_mixed_precision_leaves_the_loss_alone(loss):
    """Vectors of length 10: in bfloat16 their products would be off by tenths, and the loss by a tenth of itself."""
    torch.manual_seed(0)
    targets = 10 * unit(50, 32)
    predictions = targets + torch.randn(50, 32)
    exact = masked_vector_loss(loss, predictions, targets, 0.05)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = masked_vector_loss(loss, predictions, targets, 0.05)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, exact, atol=0, rtol=1e-6)


# --- the contracts of the house


@pytest.mark.parametrize("hidden_size", [32, 8])
@pytest.mark.parametrize("cls", CLASSES)
def test_save_and_load_change_nothing(cls, hidden_size, tmp_path):
    model = toy(cls, hidden_size=hidden_size)
    model.save_pretrained(tmp_path)
    again, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    state = model.state_dict()
    assert state.keys() == again.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state_dict().items())
    assert isinstance(AutoConfig.from_pretrained(tmp_path), HateConfig)
    assert load_file(tmp_path / "model.safetensors").keys() == state.keys()


def test_the_decoder_is_dropped_without_a_word(tmp_path, transformers_log):
    model = toy(HateForMaskedSentencePrediction, hidden_size=8)
    model.save_pretrained(tmp_path)
    base, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(base, HateModel)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not transformers_log.text
    classifier, info = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(classifier, HateForSequenceClassification)
    assert not info["unexpected_keys"]
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"classifier"}
    assert isinstance(AutoModelForPreTraining.from_pretrained(tmp_path), HateForMaskedSentencePrediction)


def test_new_weights_do_not_drown_sentences_in_positions():
    """With the bottleneck, too, different sentences at the same place stay further apart than half way."""
    for hidden_size in (32, 8):
        model = toy(hidden_size=hidden_size)
        one, two = (model(inputs_embeds=unit(1, 8, 32)).last_hidden_state for _ in range(2))
        assert F.cosine_similarity(one, two, dim=-1).mean() < 0.7


def test_a_batch_changes_nothing_and_text_is_as_good_as_vectors(minilm):
    model = toy(hidden_size=16)
    model.tokenizer = minilm.tokenizer
    texts = ["Call me Ishmael. I went to sea.", "A ball at Bath. " * 12, "It rained. " * 4]
    together = model.encode(texts)
    for text, found in zip(texts, together, strict=True):
        alone = model.encode(text)
        close(alone.document, found.document)
        close(alone.chunks, found.chunks)
        close(model(inputs_embeds=found.plain[None]).pooler_output[0], found.document)
        ids = model.tokenizer(text, return_tensors="pt")
        close(model(**ids).pooler_output[0], found.document)
    assert len(together[1].plain) > 8  # more than a window


def test_windows_start_at_position_zero_and_are_averaged():
    model = toy(window_overlap=4, pooling="sum")
    vectors = unit(12, 32)
    first, second = (model(inputs_embeds=part[None]).last_hidden_state[0] for part in (vectors[:8], vectors[4:]))
    both = model(inputs_embeds=vectors[None])
    close(both.last_hidden_state[0, :4], first[:4])
    close(both.last_hidden_state[0, 4:8], (first[4:] + second[:4]) / 2)
    close(both.pooler_output[0], both.last_hidden_state[0].sum(0))


@pytest.mark.parametrize("config", [RobertaConfig, MPNetConfig])
def test_any_backbone_with_a_table_of_positions(config, tmp_path):
    upper = config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = HateModel(toy_config(encoder_config=upper.to_dict())).eval()
    vectors = unit(2, 7, 32)
    assert not torch.allclose(
        model(inputs_embeds=vectors.flip(1)).pooler_output, model(inputs_embeds=vectors).pooler_output
    )
    model.save_pretrained(tmp_path)
    close(
        AutoModel.from_pretrained(tmp_path)(inputs_embeds=vectors).pooler_output,
        model(inputs_embeds=vectors).pooler_output,
    )


def test_half_precision():
    model = toy(HateForMaskedSentencePrediction, hidden_size=8).to(torch.bfloat16)
    output = model(**batch_of())
    assert output.predictions.dtype == torch.bfloat16
    assert torch.isfinite(output.loss)


def test_it_opens_with_sentence_transformers(minilm, tmp_path):
    model = toy(HateForMaskedSentencePrediction, hidden_size=8)
    model.tokenizer = minilm.tokenizer
    model.save_pretrained(tmp_path / "model")
    text = "Call me Ishmael. I went to sea."
    found = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(text)
    np.testing.assert_allclose(found, model.model.encode(text).document.numpy(), atol=1e-6)


def test_an_adapter_loads_on_the_base_checkpoint(tmp_path):
    toy().save_pretrained(tmp_path / "base")
    torch.manual_seed(1)
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=2)
    inputs = {"inputs_embeds": unit(4, 5, 32), "labels": torch.tensor([0, 1, 0, 1])}
    model = get_peft_model(base, LoraConfig(target_modules=["query", "value"], modules_to_save=["classifier"]))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
    trained = model.eval()(**inputs).logits
    model.save_pretrained(tmp_path / "adapter")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=2)
    close(PeftModel.from_pretrained(again, tmp_path / "adapter").eval()(**inputs).logits, trained)


def test_questions_stand_in_the_space_of_sentences():
    """With a bottleneck the document vector has 8 dimensions, the question beside it 32."""
    model = toy(HateForSequenceClassification, hidden_size=8, num_labels=3, text_pair=True)
    assert model.classifier[0].in_features == 40
    assert model(inputs_embeds=unit(2, 4, 32), pair_embeds=unit(2, 32)).logits.shape == (2, 3)


# --- what it refuses


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 64}, "undercomplete, so give an encoder_config .or hidden_size. of at most 32"),
        ({"max_chunks": 9}, "give 1 to 8"),
        ({"vector_scale": 0.0}, "vector_scale must be positive"),
        ({"vector_scale": math.nan}, "vector_scale must be positive"),
        ({"temperature": 0.0}, "temperature must be positive"),
    ],
)
def test_configurations_that_cannot_be(values, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        toy_config(**values)


def test_what_a_new_model_refuses(minilm):
    with pytest.raises(ValueError, match="at most 384"):
        HateModel.from_chunk_encoder(minilm, hidden_size=512)
    with pytest.raises(ValueError, match="must be 1 or more"):
        HateModel.from_chunk_encoder(minilm, num_hidden_layers=0)
    with pytest.raises(ValueError, match="must be 1 or more, got 0, 6"):
        HateModel.from_chunk_encoder(minilm, hidden_size=0)
    with pytest.raises(ValueError, match="leave out hidden_size and num_hidden_layers"):
        HateModel.from_chunk_encoder(minilm, hidden_size=8, encoder_config=BertConfig(**BOTTLENECK))
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    distil = DistilBertConfig(dim=32, hidden_dim=32, n_layers=1, n_heads=2, sinusoidal_pos_embds=True)
    for upper in (ModernBertConfig(**size), LongformerConfig(**size), distil):
        config = toy_config(encoder_config=upper.to_dict())
        with pytest.raises(ValueError, match=f"{upper.model_type} as configured has no table that can be removed"):
            HateModel(config)
    with pytest.raises(StrictDataclassError, match="loss"):
        toy_config(loss="smooth_l1")
    with pytest.raises(ValueError, match="HateModel has no word embeddings"):
        toy().resize_token_embeddings(10)


def test_packed_sequences_of_nextlevelbert_do_not_reach_past_the_window(corpus):
    """HATE has no [SEP]; packing is NextLevelBERT's, and a sequence above the window is refused."""
    row = PackedVectorDataset(corpus, 20)[0]
    with pytest.raises(ValueError, match="9 positions, got 20"):
        toy()(inputs_embeds=row["inputs_embeds"][None].float(), special_ids=row["special_ids"][None])
    special_ids = torch.tensor([[CLS, NOT_SPECIAL, SEP]])
    with pytest.raises(ValueError, match=r"\[SEP\], which this model does not have; use DocumentVectorDataset"):
        toy()(inputs_embeds=unit(1, 3, 32), special_ids=special_ids)


@pytest.mark.parametrize("pooling", ["cls", "mean", "sum"])
def test_a_sequence_of_one_document_has_the_document_s_vector(pooling):
    model = toy(pooling=pooling)
    sentences = unit(2, 4, 32)
    special_ids = torch.tensor([[CLS, *[NOT_SPECIAL] * 4, PAD]] * 2)
    packed = torch.cat([torch.zeros(2, 1, 32), sentences, torch.zeros(2, 1, 32)], dim=1)
    close(
        model(inputs_embeds=packed, special_ids=special_ids).pooler_output,
        model(inputs_embeds=sentences).pooler_output,
    )


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_fixed_vectors_are_as_long_as_sentences_whatever_the_scale(scale):
    table = toy(vector_scale=scale).special_embeddings.weight
    assert 0.5 < table[[CLS, MASK]].norm(dim=-1).mean() < 1.5
