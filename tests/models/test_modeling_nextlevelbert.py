"""The contracts of a document model: any length, any batch, both ways in, and what a person may
give it."""

import copy
import math
import shutil
import warnings

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.special import softmax
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch.nn import functional as F
from transformers import (
    AutoModel,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

from nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertModel,
    load_chunk_encoder,
)
from nextlevelbert.models.configuration_nextlevelbert import CLS, NOT_SPECIAL, PAD, SEP
from nextlevelbert.models.losses import choice_loss, p_norm_loss, smooth_l1_loss

from ..toys.vectors import (
    TEXTS,
    TINY,
    close,
    packed_batch,
    save_random_table,
    toy_config,
    whitened,
)

SPECIALS = {
    "pad_token_id": 0,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@torch.no_grad()
def test_padding_on_either_side_changes_nothing(toy):
    tokens = toy.tokenizer(TEXTS[2], return_tensors="pt")
    padding = torch.full((1, 5), -100)  # its ids do not matter
    expected = toy(**tokens).pooler_output

    for order in ([padding, tokens["input_ids"]], [tokens["input_ids"], padding]):
        ids = torch.cat(order, dim=1)
        close(toy(input_ids=ids, attention_mask=(ids != -100).long()).pooler_output, expected)


@torch.no_grad()
def test_mean_max_and_cls(toy):
    vectors = torch.randn(1, 5, 32)

    raw = toy(inputs_embeds=vectors, output_hidden_states=True)

    chunks = raw.last_hidden_state[0]
    close(raw.pooler_output[0], chunks.mean(dim=0))
    assert raw.hidden_states[-1].shape == (1, 7, 32)
    toy.config.pooling = "max"
    close(toy(inputs_embeds=vectors).pooler_output[0], chunks.amax(dim=0))
    toy.config.pooling = "cls"
    close(toy(inputs_embeds=vectors).pooler_output[0], raw.hidden_states[-1][0, 0])


@torch.no_grad()
def test_truncation_keeps_the_first_window_and_says_so(toy, caplog):
    vectors = torch.randn(2, 11, 32)
    toy.config.long_documents = "truncate"

    first = toy(inputs_embeds=vectors[:, :8])

    assert not caplog.text  # a document of exactly one window is whole
    output = toy(inputs_embeds=vectors)
    assert "Documents [0, 1]" in caplog.text
    assert "removes 6 chunks" in caplog.text
    close(output.pooler_output, first.pooler_output)
    close(output.last_hidden_state[:, :8], first.last_hidden_state)
    assert output.chunk_mask.sum(dim=1).tolist() == [8, 8]
    assert torch.equal(output.chunk_vectors, vectors)


def test_too_long_is_an_error_where_asked(toy):
    toy.config.long_documents = "error"

    toy(inputs_embeds=torch.randn(1, 8, 32))  # as many as fit
    with pytest.raises(
        ValueError, match=r"Documents \[1\] have \[11\] chunks, more than max_chunks = 8"
    ):
        toy(
            inputs_embeds=torch.randn(2, 11, 32),
            attention_mask=torch.tensor([[1] * 3 + [0] * 8, [1] * 11]),
        )


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


def test_the_plan_counts_what_encoding_will_do(toy):
    text = "word " * 60 + "tail"

    plan = toy.plan(text)

    assert (plan.tokens, plan.chunks, plan.windows) == (61, 11, 2)
    assert len(toy.encode(text).chunks) == plan.chunks
    assert [toy.plan("word " * count).windows for count in (0, 1, 48, 49, 84, 85)] == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]
    assert toy.plan([]) == toy.encode([]) == []


@pytest.mark.parametrize(
    "made", [iter, lambda texts: Dataset.from_dict({"text": texts}).to_iterable_dataset()]
)
def test_documents_come_in_every_form_that_people_have(toy, made):
    texts = ["the sea", "a whale and a ship", "the storm"]

    assert toy.plan(made(texts)) == toy.plan(texts)
    for embedding, expected in zip(toy.iter_encode(made(texts)), toy.encode(texts), strict=True):
        close(embedding.document, expected.document)


def test_groups_and_their_order_change_nothing(toy, monkeypatch):
    texts = ["one", "word " * 200, "two", "word " * 60, "three"]
    expected = toy.encode(texts)
    monkeypatch.setattr("nextlevelbert.models.document_encoding._CHUNKS_PER_GROUP", 12)

    for alone, other in zip(toy.encode(texts), expected, strict=True):
        close(alone.document, other.document)
        close(alone.chunks, other.chunks)


def test_encoding_leaves_dropout_out_and_the_model_in_its_mode(toy):
    expected = toy.encode(TEXTS[0])
    toy.train()

    book = toy.encode(TEXTS[0])

    close(book.document, expected.document)
    assert toy.training


def test_a_static_encoder_starts_as_the_mean_except_where_masks_train_the_vector(minilm, tmp_path):
    save_random_table(minilm.tokenizer, 32, tmp_path)

    model = NextLevelBertModel.from_chunk_encoder(tmp_path, chunk_size=16)

    assert (model.config.pooling, model.config.encoder_config.num_hidden_layers) == ("residual", 2)
    book = model.encode("the sea and the ship " * 20)
    close(book.document, torch.nn.functional.normalize(book.plain.mean(dim=0), dim=0))
    assert (
        NextLevelBertForMaskedVectorModeling.from_chunk_encoder(tmp_path).config.pooling == "mean"
    )


def test_a_checkpoint_without_its_encoder_borrows_it_when_text_arrives(
    toy_encoder_path, tmp_path, monkeypatch
):
    source = load_chunk_encoder(toy_encoder_path, "someone/encoder")
    whole = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)
    expected = whole.encode(TEXTS[2]).document
    whole.detach_chunk_encoder()
    whole.save_pretrained(tmp_path)

    again = NextLevelBertModel.from_pretrained(tmp_path)

    close(again.encode(TEXTS[2], chunk_encoder=source).document, expected)
    for field, value in (
        ("chunk_encoder_fingerprint", ""),
        ("chunk_encoder_name", toy_encoder_path),
    ):
        other = copy.deepcopy(again)
        setattr(other.config, field, value)
        with pytest.raises(ValueError, match="holds no chunk encoder"):
            other.encode(TEXTS[2])
    monkeypatch.setattr(
        "nextlevelbert.models.modeling_nextlevelbert.load_chunk_encoder",
        lambda name, pooling: {source.name: source}[name],
    )
    close(again.encode(TEXTS[2]).document, expected)
    assert "chunk_encoder" not in str(again.state_dict().keys())
    rough = NextLevelBertModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    rough_document = rough.encode(TEXTS[2]).document
    assert torch.cosine_similarity(rough_document, expected, dim=0) > 0.999


@torch.no_grad()
def test_hidden_states_are_given_if_the_configuration_asks_for_them(toy):
    vectors = torch.randn(1, 5, 32)
    toy.config.output_hidden_states = True

    output = toy(inputs_embeds=vectors)

    assert len(output.hidden_states) == 3
    assert toy(inputs_embeds=vectors, output_hidden_states=False).hidden_states is None
    toy.config.return_dict = False
    toy.encode("word " * 60)  # two windows, whose hidden states nobody gets


def test_new_tokens_are_refused(toy):
    with pytest.raises(ValueError, match=r"frozen.*new tokens.*from_chunk_encoder"):
        toy.resize_token_embeddings(31_000)
    with pytest.raises(ValueError, match=r"frozen.*new tokens"):
        toy.set_input_embeddings(torch.nn.Embedding(9, 32))
    toy.tokenizer = copy.deepcopy(toy.tokenizer)
    toy.tokenizer.add_tokens(["zzqpharmacol"])
    with pytest.raises(ValueError, match=r"token id 30522, .* 30522 tokens and is frozen"):
        toy.encode("the zzqpharmacol dose")


def test_training_a_model_without_anything_to_train_warns_and_ends_in_an_error(minilm, tmp_path):
    save_random_table(minilm.tokenizer, 32, tmp_path)
    model = NextLevelBertModel.from_chunk_encoder(tmp_path, chunk_size=16, pooling="plain")
    batch = model.tokenizer(TEXTS[2:], padding=True, return_tensors="pt")
    model(**batch)  # in evaluation mode

    with pytest.warns(UserWarning, match=r"nothing to train.*pooling='residual'"):
        output = model.train()(**batch)

    with pytest.raises(RuntimeError, match="does not require grad"):
        output.pooler_output.sum().backward()


def test_the_targets_are_the_labels_and_not_the_corrupted_vectors():
    model = NextLevelBertForMaskedVectorModeling(toy_config()).eval()
    batch = packed_batch()
    masked = batch["mask_positions"]
    batch["inputs_embeds"][masked] = 0.0

    output = model(**batch)

    close(output.targets, batch["labels"][masked])
    close(output.loss, smooth_l1_loss(output.predictions, output.targets))


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ({}, "either"),
        (
            {"inputs_embeds": torch.ones(2, 11, 32), "special_ids": torch.ones(2, 11).long()},
            "--sequence_length",
        ),
    ],
)
def test_what_forward_refuses(toy, inputs, word):
    with pytest.raises(ValueError, match=word):
        toy(**inputs)


def test_a_slip_in_an_argument_and_a_model_without_a_tokenizer_are_refused(toy_encoder_path):
    with pytest.raises(ValueError, match=r"'chunk_sise' \(did you mean 'chunk_size'\?\)"):
        NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_sise=128)
    with pytest.raises(ValueError, match="tokenizer"):
        NextLevelBertModel(toy_config()).encode("text")


def test_blank_text_has_the_zero_vector_and_a_warning(toy):
    with pytest.warns(UserWarning, match=r"Document\(s\) 1, 3 contain no token"):
        books = toy.encode(["words", "", "more words", " \n\t"])

    assert (books[1].document == 0).all()
    assert books[1].chunks.shape == books[3].plain.shape == (0, 32)
    assert books[1].spans.shape == (0, 2)
    batch = toy.tokenizer(["words", ""], padding=True, return_tensors="pt")
    with pytest.warns(UserWarning, match=r"Document\(s\) 1 contain"), torch.no_grad():
        output = toy(**batch)
    assert (output.pooler_output[1] == 0).all()
    close(output.pooler_output[0], books[0].document)


def test_it_starts_from_the_encoders_own_layers(minilm):
    model = NextLevelBertModel.from_chunk_encoder(minilm)
    source = minilm.encoder.model.state_dict()
    del source["embeddings.word_embeddings.weight"]

    torch.testing.assert_close(dict(model.encoder.state_dict()), dict(source), atol=0, rtol=0)
    assert model.config.max_chunks == 510
    # Special vectors are as long as the chunk vectors between them, and padding is zero.
    special = model.special_embeddings.weight
    assert not special[PAD].any()
    assert ((special[CLS:].norm(dim=-1) - 1).abs() < 0.2).all()
    config = minilm.encoder.model.config.to_dict()
    with pytest.raises(ValueError, match="random_layers"):
        NextLevelBertModel.from_chunk_encoder(
            minilm, encoder_config={**config, "num_hidden_layers": 7}
        )
    shorter = NextLevelBertModel.from_chunk_encoder(
        minilm, encoder_config={**config, "max_position_embeddings": 34}
    )
    assert shorter.config.max_chunks == 32
    positions = shorter.encoder.embeddings.position_embeddings.weight
    assert torch.equal(positions, source["embeddings.position_embeddings.weight"][:34])


@torch.no_grad()
@pytest.mark.parametrize(
    "config",
    [
        BertConfig(**TINY, max_position_embeddings=12),
        RobertaConfig(**TINY, max_position_embeddings=14, pad_token_id=1),
        MPNetConfig(**TINY, max_position_embeddings=14, pad_token_id=1),
        DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=12),
        ModernBertConfig(**TINY, **SPECIALS, max_position_embeddings=12, vocab_size=99),
    ],
    ids=lambda config: config.model_type,
)
def test_any_backbone_that_takes_vectors(config, tmp_path):
    model = NextLevelBertModel(toy_config(encoder_config=config.to_dict())).eval()

    assert model.config.max_chunks == 10
    vectors = torch.randn(2, 25, 32)
    expected = model(inputs_embeds=vectors).pooler_output
    model.save_pretrained(tmp_path)
    close(AutoModel.from_pretrained(tmp_path)(inputs_embeds=vectors).pooler_output, expected)
    close(model(inputs_embeds=vectors[:1]).pooler_output, expected[:1])


def test_a_model_whose_folder_is_gone_can_still_be_saved(toy_checkpoint, tmp_path):
    shutil.copytree(toy_checkpoint, tmp_path / "first")
    model = NextLevelBertModel.from_pretrained(tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    with pytest.warns(UserWarning, match="Saved without a tokenizer"):
        model.save_pretrained(tmp_path / "second")
    NextLevelBertModel.from_pretrained(tmp_path / "second").save_pretrained(
        tmp_path / "third"
    )  # vectors only


def test_ordinary_use_warns_of_nothing(toy, tmp_path, transformers_log):
    """Nor does a checkpoint that is opened without the chunk encoder that it holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        toy.encode(TEXTS)
        toy.save_pretrained(tmp_path)
        NextLevelBertModel.from_pretrained(tmp_path).encode(TEXTS)
        assert (
            NextLevelBertModel.from_pretrained(tmp_path, include_chunk_encoder=False).chunk_encoder
            is None
        )
    assert not [record for record in transformers_log.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"max_chunks": 9}, "1 to 8"),
        (
            {"chunk_encoder_config": BertConfig(hidden_size=64).to_dict()},
            "These sizes must be equal",
        ),
    ],
)
def test_configurations_that_cannot_be(values, word):
    with pytest.raises(ValueError, match=word):
        toy_config(**values)


# Losses against numbers worked out by hand.

PREDICTIONS = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
TARGETS = torch.tensor([[0.0, 4.0], [1.0, 0.5]])


def test_smooth_l1():
    """|3| - 0.5 above beta, 0.5 * 0.5 ** 2 below."""
    loss = smooth_l1_loss(PREDICTIONS, TARGETS)
    assert loss.item() == pytest.approx((2.5 + 0 + 0 + 0.125) / 4, abs=1e-6)


def ranking_loss(predictions, candidates, temperature):
    """Finds candidate i for prediction i by cosine, as sentence-transformers trains it."""
    columns = [{"sentence_embedding": predictions}, {"sentence_embedding": candidates}]
    loss = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / temperature)
    return loss(columns, labels=None)


@pytest.mark.parametrize("temperature", [1.0, 0.2, 0.05])
def test_the_choice_is_the_ranking_loss_of_sentence_transformers(temperature):
    """Random vectors of 32 dimensions are no near copies of each other."""
    torch.manual_seed(0)
    targets = torch.randn(6, 32)
    predictions = (targets + torch.randn(6, 32)).requires_grad_()
    candidates = torch.randn(9, 32)

    among_targets = choice_loss(predictions, targets, temperature=temperature)
    among_all = choice_loss(predictions, targets, candidates=candidates, temperature=temperature)

    expected = ranking_loss(predictions, torch.cat([targets, candidates]), temperature)
    close(among_targets, ranking_loss(predictions, targets, temperature))
    close(among_all, expected)
    [gradient] = torch.autograd.grad(among_all, predictions)
    close(gradient, torch.autograd.grad(expected, predictions)[0])


def test_cross_entropy_among_further_candidates():
    """The right answer, two wrong candidates, and a near copy of the target that does not count.

    The second wrong candidate is similar to the target, but no near copy.
    """
    prediction = torch.tensor([[3.0, 4.0]])
    target = torch.tensor([[0.0, 2.0]])  # cosine with the prediction: 0.8
    wrong = torch.tensor([[5.0, 0.0], [0.8, 1.8]])  # cosines with the target: 0, 0.914
    near_copy = torch.tensor([[0.3, 1.0]])  # cosine with the target: 0.958

    loss = choice_loss(
        prediction,
        target,
        candidates=torch.cat([wrong, near_copy]),
        temperature=0.5,
    )

    scores = [math.exp(0.8 / 0.5)]
    for x, y in wrong.tolist():
        cosine = (0.6 * x + 0.8 * y) / math.hypot(x, y)
        scores.append(math.exp(cosine / 0.5))
    assert loss.item() == pytest.approx(-math.log(scores[0] / sum(scores)), abs=1e-6)


@pytest.mark.parametrize("whiten_chunks", [False, True])
def test_a_model_chooses_among_the_chunks_of_its_batch_and_stored_ones(whiten_chunks):
    """Targets and candidates are whitened once, also if the inputs are whitened."""
    torch.manual_seed(0)
    config = toy_config(
        loss="cross_entropy", num_candidates=5, temperature=0.2, whiten_chunks=whiten_chunks
    )
    model = NextLevelBertForMaskedVectorModeling(config).eval()
    target_whitening = model.target_whitening
    target_whitening.mean.normal_()
    target_whitening.weight.normal_()
    if whiten_chunks:
        model.model.whitening.load_state_dict(target_whitening.state_dict())
    model.candidates = torch.randn(5, 32)
    batch = packed_batch()

    output = model(**batch)

    is_masked = batch["mask_positions"]
    is_visible = (batch["special_ids"] == NOT_SPECIAL) & ~is_masked
    targets = whitened(target_whitening, batch["labels"][is_masked])
    others = whitened(target_whitening, batch["labels"][is_visible])
    candidates = torch.cat([targets, others, model.candidates])
    assert len(candidates) == 4 + 10 + 5
    close(output.targets, targets)
    close(output.loss, ranking_loss(output.predictions, candidates, temperature=0.2))
    assert "candidates" not in model.state_dict()  # a training draws them anew


def test_only_a_choice_has_a_whitening_of_its_targets():
    regression = NextLevelBertForMaskedVectorModeling(
        toy_config(loss="smooth_l1", num_candidates=5)
    )
    choice = NextLevelBertForMaskedVectorModeling(
        toy_config(loss="cross_entropy", num_candidates=0)
    )

    assert regression.target_whitening is None
    assert choice.target_whitening is None


def test_the_mean_over_sequences_counts_those_with_a_masked_vector():
    """Sequence 0 has one position, 2 has two, and 1 has none: it is in no mean."""
    predictions = torch.tensor([[1.0], [2.0], [4.0]])
    targets = torch.zeros(3, 1)
    sequences = torch.tensor([0, 2, 2])

    loss = smooth_l1_loss(predictions, targets, sequences=sequences)

    assert loss.item() == pytest.approx((0.5 + (1.5 + 3.5) / 2) / 2)


@pytest.mark.parametrize("loss", [p_norm_loss, choice_loss])
def test_mixed_precision_leaves_the_loss_alone(loss):
    """Vectors of length 10: in bfloat16 their products would be off by tenths, and the loss by a
    tenth of itself."""
    targets = 10 * F.normalize(torch.randn(50, 32), dim=-1)
    predictions = targets + torch.randn(50, 32)
    exact = loss(predictions, targets)

    with torch.autocast("cpu", torch.bfloat16):
        mixed = loss(predictions, targets)

    assert mixed.dtype == torch.float32
    close(mixed, exact, atol=0)


def p_norm(predictions, targets, p=2.0):
    return p_norm_loss(predictions, targets, p=p)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_the_p_norm_is_that_of_numpy(p):
    """HATE: the distance of each row of softmax(Ŝ Lᵀ) from the row of the identity."""
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(5, 8))
    targets = rng.normal(size=(5, 8))

    loss = p_norm(torch.from_numpy(predictions), torch.from_numpy(targets), p)

    chosen = softmax(predictions @ targets.T, axis=1)
    distances = np.linalg.norm(chosen - np.eye(5), ord=p, axis=1)
    assert loss.item() == pytest.approx(distances.mean(), abs=1e-6)


def test_the_loss_of_three_masked_sentences_by_hand():
    """HATE, with Ŝ = ln 2 · I and L = I: every row of softmax(Ŝ Lᵀ) is 1/2 at its own place and 1/4
    at two others."""
    predictions = math.log(2) * torch.eye(3)
    targets = torch.eye(3)
    by_hand = math.sqrt(
        0.5**2 + 0.25**2 + 0.25**2
    )  # the distance of (1/2, 1/4, 1/4) from (1, 0, 0)

    close(p_norm(predictions, targets), torch.tensor(by_hand))
    close(p_norm(predictions, targets, p=1.0), torch.tensor(1.0))
    # Every prediction certain of its neighbour: (0, 1, 0) from (1, 0, 0).
    close(p_norm(100 * torch.eye(3).roll(1, 0), targets), torch.tensor(math.sqrt(2)))
