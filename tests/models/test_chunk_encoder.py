"""The frozen encoder against sentence-transformers itself, on real weights and on other
architectures."""

import json
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from torch.nn import GELU
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedConfig,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)

from nextlevelbert import ChunkingRule, HateModel, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.models.backbones import bert_over_vectors, load_backbone
from nextlevelbert.models.chunk_encoder import (
    ChunkEncoder,
    micro_batches,
    pool,
    tokens_in_memory,
    weights_fingerprint,
)
from nextlevelbert.models.tokenizing import tokenize_document

from ..toys.vectors import TINY, close, save_random_table

SENTENCES = [
    "Call me Ishmael.",
    "It was the best of times, it was the worst of times.",
    "A short one.",
    (
        "All happy families are alike; each unhappy family is unhappy in its own way, said the old"
        " book on the shelf."
    ),
]


def encode_sentences(source, sentences, **kwargs):
    rule = ChunkingRule.from_tokenizer(
        source.tokenizer, source.max_chunk_size, max_chunk_size=source.max_chunk_size
    )
    ids = [tokenize_document(source.tokenizer, sentence).input_ids for sentence in sentences]
    boundaries = np.cumsum([0] + [len(sentence) for sentence in ids])
    return source.encoder.encode(np.concatenate(ids), boundaries, rule, **kwargs)


@pytest.mark.parametrize("budget", [40, None])
def test_minilm_as_sentence_transformers_has_it(minilm, minilm_path, budget):
    expected = SentenceTransformer(minilm_path, device="cpu").encode(
        SENTENCES, convert_to_tensor=True
    )
    close(encode_sentences(minilm, SENTENCES, tokens_per_batch=budget), expected)


def test_micro_batches_keep_to_the_budget_and_lose_nothing():
    lengths = np.random.default_rng(0).integers(3, 60, 500)

    batches = list(micro_batches(lengths, 256))

    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    padded = [lengths[batch].max() * len(batch) for batch in batches]
    assert max(padded) <= 256
    assert sum(padded) < 1.05 * lengths.sum()  # sorting leaves little padding
    # Of ten that fit, as many as are 15/16 as long as the longest, but at least an eighth of the
    # budget.
    [first, second] = micro_batches(np.array([30, 29, 32, 30, 29]), 320)
    assert (len(first), len(second)) == (3, 2)


def saved(folder, steps, prompt=None):
    """A sentence encoder of these modules, with a default prompt or none."""
    model = SentenceTransformer(modules=steps, device="cpu")
    if prompt is not None:
        model.prompts = {"given": prompt}
        model.default_prompt_name = "given"
    model.save_pretrained(str(folder))
    return str(folder)


def whitespace_encoder(folder):
    """A tiny XLM-RoBERTa, whose tokens hold the space before them."""
    words = "<s> <pad> </s> <unk> ▁ ▁query : ▁the ▁ship ▁sails ▁home".split()
    scores = [-1.0 - number / 100 for number in range(len(words))]
    tokenizer = XLMRobertaTokenizer(vocab=list(zip(words, scores, strict=True)))
    tokenizer.save_pretrained(folder)
    config = XLMRobertaConfig(vocab_size=len(tokenizer), **TINY)
    XLMRobertaModel(config).save_pretrained(folder)
    return modules.Transformer(str(folder))


@pytest.mark.parametrize("mode", ["mean", "max", "cls", "mean_sqrt_len_tokens", "lasttoken"])
def test_pooling_and_normalisation_are_honoured_and_part_of_the_fingerprint(
    toy_encoder_path, tmp_path, mode
):
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    steps = [toy, modules.Pooling(32, mode), modules.Normalize()]
    fingerprints = []
    for count in (3, 2):
        path = saved(tmp_path / f"{count}", steps[:count])
        source = load_chunk_encoder(path)
        assert (source.encoder.pooling, source.encoder.normalize) == (mode, count == 3)
        expected = SentenceTransformer(path, device="cpu").encode(SENTENCES)
        vectors = encode_sentences(source, SENTENCES)
        np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=1e-4)
        fingerprints.append(source.fingerprint)
    usual = weights_fingerprint(source.encoder.model)  # of the usual kind, that of the weights

    assert fingerprints[0] != fingerprints[1]
    assert (usual in fingerprints) == (mode == "mean")


@pytest.mark.parametrize("case", ["prompt of another tokenizer", "static", "all"])
def test_prompts_dense_layers_and_weighted_means_as_sentence_transformers_has_them(
    toy_encoder_path, tmp_path, case
):
    """Each chunk has the vector of its text, also after saving, and `SentenceTransformer` reads
    whole documents."""
    torch.manual_seed(1)
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    first = modules.Dense(32, 24)
    prompt = None
    if case == "prompt of another tokenizer":
        steps = [whitespace_encoder(tmp_path / "xlm"), modules.Pooling(32)]
        prompt = "query: "
    elif case == "static":
        table = modules.StaticEmbedding(
            toy.tokenizer.backend_tokenizer, embedding_weights=torch.randn(30_522, 32)
        )
        steps = [table, first, modules.Dense(24, 16, bias=False, activation_function=None)]
    else:
        steps = [toy, modules.Pooling(32, "weightedmean"), first, modules.Normalize()]
        prompt = "Represent this text:\n"
    path = saved(tmp_path / "encoder", steps, prompt)
    original = SentenceTransformer(path, device="cpu")
    source = load_chunk_encoder(path)
    text = " ".join(["the ship sails home"] * 12)
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)
    model.save_pretrained(tmp_path / "model")

    for opened in (model, NextLevelBertModel.from_pretrained(tmp_path / "model")):
        book = opened.encode(text)
        assert len(book.plain) > 2
        chunks = [text[start:end].strip() for start, end in book.spans.tolist()]
        close(book.plain, original.encode(chunks, convert_to_tensor=True))
        ids = opened.tokenizer(text, return_tensors="pt")["input_ids"]
        close(opened(input_ids=ids).chunk_vectors[0], book.plain)
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    close(opened.encode(text, convert_to_tensor=True), book.document)
    again = load_chunk_encoder(tmp_path / "model")
    assert again.fingerprint == again.encoder.fingerprint() == source.fingerprint
    close(model.encode(text, chunk_encoder=again).plain, book.plain)


def test_dense_layers_are_part_of_the_fingerprint(toy_encoder_path, tmp_path):
    torch.manual_seed(1)
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    dense = modules.Dense(32, 32)
    other = modules.Dense(32, 32, activation_function=GELU())
    other.load_state_dict(dense.state_dict())
    sources = {}
    for more in ([], [dense], [other], [modules.Dense(32, 32)]):
        steps = [toy, modules.Pooling(32), *more, modules.Normalize()]
        source = load_chunk_encoder(saved(tmp_path / f"{len(sources)}", steps))
        sources[source.fingerprint] = source
        # Layers over the chunks start from the encoder's own, and have no such steps.
        model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)
        assert not hasattr(model.config.encoder_config, "sentence_steps")
        weight = model.encoder.encoder.layer[0].output.dense.weight
        assert torch.equal(weight, source.encoder.model.encoder.layer[0].output.dense.weight)

    assert len(sources) == 4

    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.attach_chunk_encoder(next(iter(sources.values())))


@pytest.mark.mpnet
def test_real_mpnet_as_sentence_transformers_has_it(mpnet_path):
    """all-mpnet-base-v2: padding id 1, positions from 2, 768 dimensions."""
    model = SentenceTransformer(mpnet_path, device="cpu")
    expected = model.encode(SENTENCES, convert_to_tensor=True)

    source = load_chunk_encoder(mpnet_path)

    assert source.max_chunk_size == 512
    close(encode_sentences(source, SENTENCES), expected)


def test_the_last_token_of_a_row_that_is_padded_on_the_left():
    hidden = torch.tensor([[[0.0], [1.0], [2.0]]])

    assert pool(hidden, torch.tensor([[0, 1, 1]]), "lasttoken") == 2.0


def test_another_pooling_than_the_encoder_s_own(toy_encoder_path):
    """HATE's sentence vector: the output at [CLS], here normalised as the encoder does with its
    mean."""
    source = load_chunk_encoder(toy_encoder_path, pooling="cls")
    usual = load_chunk_encoder(toy_encoder_path)

    assert (source.encoder.pooling, usual.encoder.pooling) == ("cls", "mean")
    assert source.fingerprint != usual.fingerprint
    batch = usual.tokenizer(["The ship sailed home."], return_tensors="pt")
    states = usual.encoder.model(**batch).last_hidden_state
    vectors = source.encoder(batch["input_ids"], batch["attention_mask"])
    close(vectors, torch.nn.functional.normalize(states[:, 0], dim=-1))


def test_a_plain_transformer_is_an_encoder_if_its_pooling_is_given(encoder):
    """HATE's sentence model: BERT's output at [CLS], as it is."""
    source = load_chunk_encoder(encoder, pooling="cls")

    assert (source.encoder.pooling, source.encoder.normalize) == ("cls", False)
    batch = source.tokenizer(["The ship sailed home."], return_tensors="pt")
    bert = BertModel.from_pretrained(encoder)
    expected = bert(**batch).last_hidden_state[:, 0]
    vectors = source.encoder(batch["input_ids"], batch["attention_mask"])
    close(vectors, expected)
    model = HateModel.from_chunk_encoder(source, hidden_size=16, num_hidden_layers=1, chunk_size=64)
    assert model.config.vector_scale == 1.0


class EightBitLinear(torch.nn.Module):
    """A linear layer that stores its weight in 8 bits, as libraries for quantisation do."""

    def __init__(self, linear):
        super().__init__()
        self.scale = linear.weight.abs().max().item() / 127
        whole_numbers = (linear.weight / self.scale).round().to(torch.int8)
        self.weight = torch.nn.Parameter(whole_numbers, requires_grad=False)
        self.bias = linear.bias

    def forward(self, inputs):
        weight = self.weight.to(inputs.dtype) * self.scale
        return torch.nn.functional.linear(inputs, weight, self.bias)


def test_dense_layers_can_be_quantised(toy_encoder_path, tmp_path):
    """The dtype to compute in is not that of the weights, which have 8 bits."""
    torch.manual_seed(1)
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    steps = [toy, modules.Pooling(32), modules.Dense(32, 24), modules.Dense(24, 32)]
    source = load_chunk_encoder(saved(tmp_path / "encoder", steps))
    expected = encode_sentences(source, SENTENCES)
    source.encoder.to(torch.bfloat16)

    half = encode_sentences(source, SENTENCES)

    assert half.dtype == torch.float32
    close(half, expected, atol=2e-2)
    source.encoder.to(torch.float32)
    for layer in source.encoder.dense:
        layer.linear = EightBitLinear(layer.linear)
    quantised = encode_sentences(source, SENTENCES)
    assert torch.nn.functional.cosine_similarity(quantised, expected).min() > 0.95


def test_new_layers_have_the_usual_dropout_and_a_loaded_backbone_none_on_its_attention(encoder):
    new = bert_over_vectors(32, 2)

    assert (new.hidden_dropout_prob, new.attention_probs_dropout_prob) == (0.1, 0.0)
    assert load_backbone(encoder).config.attention_probs_dropout_prob == 0.0


def test_new_layers_have_the_shape_of_bert_in_minilm_s_size():
    new = bert_over_vectors(384, 2)

    assert (new.num_attention_heads, new.intermediate_size) == (12, 1_536)
    assert bert_over_vectors(100, 2).num_attention_heads == 1  # 32 does not divide 100


@pytest.mark.parametrize(
    ("steps", "prompt", "word"),
    [
        ([modules.Pooling(32), modules.LayerNorm(32)], None, "LayerNorm"),
        ([modules.Pooling(32, ("cls", "mean"))], None, "'cls', 'mean'"),
        ([modules.Pooling(32)], "re", "'re'"),
    ],
)
def test_what_is_not_supported_is_named(toy_encoder_path, tmp_path, steps, prompt, word):
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    with pytest.raises(ValueError, match=word):
        load_chunk_encoder(saved(tmp_path, [toy, *steps], prompt))


def test_a_table_for_fewer_tokens_is_refused(minilm, tmp_path):
    save_random_table(minilm.tokenizer, 8, tmp_path, rows=30_000)
    with pytest.raises(ValueError, match="30521"):
        load_chunk_encoder(tmp_path)


def test_a_plain_transformer_needs_a_pooling(encoder):
    """Sentence-transformers would take the mean."""
    with pytest.raises(ValueError, match="modules"):
        load_chunk_encoder(encoder)


def test_a_document_model_without_a_fingerprint_gets_that_of_its_weights(toy_checkpoint, tmp_path):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    model.config.chunk_encoder_fingerprint = ""
    model.save_pretrained(tmp_path)

    fingerprint = load_chunk_encoder(tmp_path).fingerprint

    assert fingerprint == load_chunk_encoder(toy_checkpoint).fingerprint


def test_code_that_comes_with_an_encoder_is_not_run(toy_encoder_path, tmp_path):
    folder = shutil.copytree(toy_encoder_path, tmp_path / "claims")
    config = json.loads((folder / "config.json").read_text())
    custom = {
        **config,
        "model_type": "custom",
        "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"},
    }
    (folder / "config.json").write_text(json.dumps(custom))
    (folder / "code.py").write_text("raise SystemExit('run')")

    with pytest.raises(Exception, match="trust_remote_code"):
        load_chunk_encoder(folder)


@pytest.mark.parametrize("room", [4, 1])
def test_a_batch_is_halved_if_the_gpu_has_no_room(
    toy_encoder_path, monkeypatch, transformers_log, room
):
    """Vectors are the same; later batches are as small from the start."""
    source = load_chunk_encoder(toy_encoder_path)
    texts = SENTENCES * 5
    expected = encode_sentences(source, texts)
    forward = ChunkEncoder.forward
    sizes = []

    def forward_in_room(self, input_ids, *args):
        sizes.append(len(input_ids))
        if len(input_ids) > room:
            raise torch.OutOfMemoryError("out of memory")
        return forward(self, input_ids, *args)

    monkeypatch.setattr(ChunkEncoder, "forward", forward_in_room)

    close(encode_sentences(source, texts), expected)
    assert max(sizes) > room
    assert "has no memory left for" in transformers_log.text
    sizes.clear()
    close(encode_sentences(source, texts), expected)
    assert max(sizes) <= 2 * room


def test_a_gpu_without_room_for_one_chunk(toy_encoder_path, monkeypatch):
    source = load_chunk_encoder(toy_encoder_path)

    def refuse(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ChunkEncoder, "forward", refuse)

    with pytest.raises(MemoryError, match=r"no memory left for one chunk .*--device cpu"):
        encode_sentences(source, SENTENCES)


@pytest.mark.parametrize(
    ("mebibytes", "tokens"),
    [
        (2_048, 53_773),  # half of them by 4 bytes * (5 * 384 + 2 * 1536) values of a token
        (1, 2_048),  # as on the CPU
        (80_000, 131_072),
    ],
)
def test_a_forward_pass_fills_half_of_the_free_memory(mebibytes, tokens):
    config = BertConfig(hidden_size=384, intermediate_size=1536)

    assert tokens_in_memory(mebibytes * 2**20, config) == tokens


def test_a_network_without_a_wide_layer_counts_as_bert():
    config = PreTrainedConfig(hidden_size=384)

    assert tokens_in_memory(2**31, config) == 53_773
