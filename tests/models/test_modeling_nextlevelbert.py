"""The contracts of a document model: any length, any batch, both ways in, and what a person may
give it."""

import copy
import shutil
import warnings

import pytest
import torch
import transformers
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
)
from nextlevelbert.models.configuration_nextlevelbert import CLS, NOT_SPECIAL, PAD
from nextlevelbert.models.losses import smooth_l1_loss

from ..toys.vectors import (
    TEXTS,
    TINY,
    close,
    packed_batch,
    ranking_loss,
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
def test_truncation_keeps_the_first_window_and_says_so(toy, transformers_log):
    vectors = torch.randn(2, 11, 32)
    toy.config.long_documents = "truncate"

    first = toy(inputs_embeds=vectors[:, :8])

    assert not transformers_log.text  # a document of exactly one window is whole
    output = toy(inputs_embeds=vectors)
    assert "Documents [0, 1]" in transformers_log.text
    assert "removes 6 chunks" in transformers_log.text
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


def test_a_static_encoder_starts_as_the_mean_except_where_masks_train_the_vector(minilm, tmp_path):
    save_random_table(minilm.tokenizer, 32, tmp_path)

    model = NextLevelBertModel.from_chunk_encoder(tmp_path, chunk_size=16)

    assert (model.config.pooling, model.config.encoder_config.num_hidden_layers) == ("residual", 2)
    book = model.encode("the sea and the ship " * 20)
    close(book.document, torch.nn.functional.normalize(book.plain.mean(dim=0), dim=0))
    assert (
        NextLevelBertForMaskedVectorModeling.from_chunk_encoder(tmp_path).config.pooling == "mean"
    )


@torch.no_grad()
def test_hidden_states_are_given_if_the_configuration_asks_for_them(toy):
    vectors = torch.randn(1, 5, 32)
    toy.config.output_hidden_states = True

    output = toy(inputs_embeds=vectors)

    assert len(output.hidden_states) == 3
    assert toy(inputs_embeds=vectors, output_hidden_states=False).hidden_states is None
    toy.config.return_dict = False
    toy.encode("word " * 60)  # two windows, whose hidden states nobody gets


def test_new_tokens_are_refused(toy, minilm):
    with pytest.raises(ValueError, match=r"frozen.*new tokens.*from_chunk_encoder"):
        toy.resize_token_embeddings(31_000)
    with pytest.raises(ValueError, match=r"frozen.*new tokens"):
        toy.set_input_embeddings(torch.nn.Embedding(9, 32))
    toy.tokenizer = copy.deepcopy(minilm.tokenizer)
    toy.tokenizer.add_tokens(["zzqpharmacol"])
    with pytest.raises(ValueError, match=r"token id 30522, .* 30522 tokens and is frozen"):
        toy.encode("the zzqpharmacol dose")


def test_training_a_model_without_anything_to_train_warns_and_ends_in_an_error(
    minilm, tmp_path, transformers_log
):
    save_random_table(minilm.tokenizer, 32, tmp_path)
    model = NextLevelBertModel.from_chunk_encoder(tmp_path, chunk_size=16, pooling="plain")
    batch = model.tokenizer(TEXTS[2:], padding=True, return_tensors="pt")
    model(**batch)  # in evaluation mode

    output = model.train()(**batch)

    assert "nothing to train" in transformers_log.text
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


@torch.no_grad()
def test_the_verbosity_of_transformers_silences_models(toy, transformers_log):
    toy.config.long_documents = "truncate"
    verbosity = transformers.utils.logging.get_verbosity()

    transformers.utils.logging.set_verbosity_error()
    toy(inputs_embeds=torch.randn(1, 11, 32))
    transformers.utils.logging.set_verbosity(verbosity)

    assert not transformers_log.text


def test_a_model_whose_folder_is_gone_can_still_be_saved(
    toy_checkpoint, tmp_path, transformers_log
):
    shutil.copytree(toy_checkpoint, tmp_path / "first")
    model = NextLevelBertModel.from_pretrained(tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    model.save_pretrained(tmp_path / "second")

    assert "Saved without a tokenizer" in transformers_log.text

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
