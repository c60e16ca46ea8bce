"""The frozen encoder against sentence-transformers itself, on real weights and on other architectures."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import TemplateProcessing
from torch.nn import GELU, Tanh
from transformers import BertConfig, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from nextlevelbert import (
    ChunkingRule,
    Document,
    HateModel,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.models.chunk_encoder import ChunkEncoder, micro_batches, weights_fingerprint
from nextlevelbert.models.chunking import tokenize_document
from nextlevelbert.models.pooling import DenseLayer

SENTENCES = [
    "Call me Ishmael.",
    "It was the best of times, it was the worst of times.",
    "A short one.",
    "All happy families are alike; each unhappy family is unhappy in its own way, said the old book on the shelf.",
]


def encode_sentences(source, sentences, **kwargs):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, source.max_chunk_size, max_chunk_size=source.max_chunk_size)
    ids = [tokenize_document(source.tokenizer, sentence).input_ids for sentence in sentences]
    boundaries = np.cumsum([0] + [len(sentence) for sentence in ids])
    return source.encoder.encode(np.concatenate(ids), boundaries, rule, **kwargs)


@pytest.mark.parametrize("budget", [1, 40, None])
def test_minilm_as_sentence_transformers_has_it(minilm, minilm_path, budget):
    expected = SentenceTransformer(minilm_path, device="cpu").encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(
        encode_sentences(minilm, SENTENCES, tokens_per_batch=budget), expected, atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "mean_sqrt_len_tokens", "lasttoken"])
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling_and_normalisation_are_honoured(minilm_path, tmp_path, pooling, normalize):
    original = SentenceTransformer(minilm_path, device="cpu")
    steps = [original[0], modules.Pooling(384, pooling)] + ([modules.Normalize()] if normalize else [])
    changed = SentenceTransformer(modules=steps, device="cpu")
    changed.save_pretrained(str(tmp_path))
    expected = changed.encode(SENTENCES, convert_to_tensor=True)
    source = load_chunk_encoder(str(tmp_path))
    assert (source.encoder.pooling, source.encoder.normalize) == (pooling, normalize)
    torch.testing.assert_close(encode_sentences(source, SENTENCES), expected, atol=1e-5, rtol=1e-4)


def test_micro_batches_keep_to_the_budget_and_lose_nothing():
    lengths = np.random.default_rng(0).integers(3, 60, 500)
    batches = list(micro_batches(lengths, 256))
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    assert all(lengths[batch].max() * len(batch) <= 256 for batch in batches)
    padded = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert padded < 1.05 * lengths.sum()  # sorting leaves little padding
    # Of ten that fit, as many as are 15/16 as long as the longest, but at least an eighth of the budget.
    assert [len(batch) for batch in micro_batches(np.array([30, 29, 32, 30, 29]), 320)] == [3, 2]


def test_bfloat16_stays_close(minilm):
    import copy

    exact = encode_sentences(minilm, SENTENCES)
    source = copy.copy(minilm)
    source.encoder = copy.deepcopy(minilm.encoder).to(torch.bfloat16)
    rough = encode_sentences(source, SENTENCES)
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, exact)
    assert torch.cosine_similarity(rough, exact).min() > 0.999


def test_it_cannot_be_put_into_training():
    encoder = ChunkEncoder(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=50))
    parent = torch.nn.ModuleDict({"chunk_encoder": encoder}).train()
    assert parent.training
    assert not any(module.training for module in encoder.modules())
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_the_fingerprint_tells_weights_apart(minilm, minilm_path):
    assert load_chunk_encoder(minilm_path).fingerprint == minilm.fingerprint
    changed = ChunkEncoder(minilm.encoder.model.config)
    changed.load_state_dict(minilm.encoder.state_dict())
    assert changed.fingerprint() == minilm.fingerprint
    next(changed.parameters()).data[0, 0] += 1e-3
    assert changed.fingerprint() != minilm.fingerprint


def test_a_folder_is_named_without_its_path(minilm_path):
    assert load_chunk_encoder(minilm_path).name == "model"


def test_unknown_and_unsupported_encoders(minilm_path, tmp_path):
    with pytest.raises(ValueError, match="Cannot load the chunk encoder 'no/such-model'"):
        load_chunk_encoder("no/such-model")
    with pytest.raises(ValueError, match="Cannot load the chunk encoder"):
        load_chunk_encoder(str(tmp_path / "nothing"))


def saved(folder, steps, prompt: str | None = None) -> str:
    """A sentence encoder of these modules, with a default prompt or none."""
    model = SentenceTransformer(modules=steps, device="cpu")
    if prompt is not None:
        model.prompts, model.default_prompt_name = {"given": prompt}, "given"
    model.save_pretrained(str(folder))
    return str(folder)


def test_steps_that_are_not_supported_are_named(toy_encoder_path, tmp_path):
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    tokens = modules.Dense(32, 16, module_input_name="token_embeddings")
    residual = modules.Dense(32, 16, use_residual=True)
    for number, (steps, prompt, message) in enumerate(
        [
            ([toy, modules.Pooling(32), modules.LayerNorm(32)], None, "Transformer → Pooling → LayerNorm"),
            ([toy, modules.Pooling(32), modules.Normalize(), modules.Dense(32, 16)], None, "→ Normalize → Dense"),
            ([toy, modules.Pooling(32, ("cls", "mean"))], None, r"pools by \('cls', 'mean'\); supported is one of"),
            ([toy, modules.Pooling(32), tokens], None, "a Dense over 'token_embeddings'"),
            ([toy, modules.Pooling(32), residual], None, "with a residual"),
            ([toy, modules.Pooling(32, include_prompt=False)], "query: ", "puts the prompt 'given'.*include_prompt"),
            ([toy, modules.Pooling(32)], "re", "The prompt 're' .* runs into the first word"),
        ]
    ):
        with pytest.raises(ValueError, match=message):
            load_chunk_encoder(saved(tmp_path / str(number), steps, prompt))


def whitespace_encoder(folder) -> modules.Transformer:
    """A tiny XLM-RoBERTa, whose tokens hold the space before them."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁query", ":", "▁the", "▁ship", "▁sails", "▁home"]
    backend = Tokenizer(Unigram([(word, -1.0 - number / 100) for number, word in enumerate(words)], unk_id=3))
    backend.pre_tokenizer, backend.decoder = Metaspace(), MetaspaceDecoder()
    special = [("<s>", 0), ("</s>", 2)]
    backend.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=special
    )
    tokens = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", model_input_names=["input_ids", "attention_mask"], **tokens
    ).save_pretrained(folder)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    XLMRobertaModel(XLMRobertaConfig(vocab_size=len(words), **size)).save_pretrained(folder)
    return modules.Transformer(str(folder))


@pytest.mark.parametrize("case", ["prompt", "prompt of another tokenizer", "dense", "static", "weighted", "all"])
def test_prompts_dense_layers_and_weighted_means_as_sentence_transformers_has_them(toy_encoder_path, tmp_path, case):
    """Each chunk has the vector of its text, also after saving, and `SentenceTransformer` reads whole documents."""
    torch.manual_seed(1)
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    mean, twice = (
        modules.Pooling(32),
        [modules.Dense(32, 24), modules.Dense(24, 16, bias=False, activation_function=None)],
    )
    steps, prompt = {
        "prompt": ([toy, mean, modules.Normalize()], "search_document: "),
        "prompt of another tokenizer": ([whitespace_encoder(tmp_path / "xlm"), mean], "query: "),
        "dense": ([toy, mean, *twice, modules.Normalize()], None),
        "static": ([modules.StaticEmbedding(toy.tokenizer.backend_tokenizer, torch.randn(30522, 32)), *twice], None),
        "weighted": ([toy, modules.Pooling(32, "weightedmean")], None),
        "all": ([toy, modules.Pooling(32, "weightedmean"), *twice[:1], modules.Normalize()], "Represent this text:\n"),
    }[case]
    path = saved(tmp_path / "encoder", steps, prompt)
    original, source = SentenceTransformer(path, device="cpu"), load_chunk_encoder(path)
    text = " ".join(["the ship sails home"] * 12)
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)
    model.save_pretrained(tmp_path / "model")
    for opened in (model, NextLevelBertModel.from_pretrained(tmp_path / "model")):
        book = opened.encode(text)
        assert len(book.plain) > 2
        chunks = [text[start:end].strip() for start, end in book.spans.tolist()]
        expected = original.encode(chunks, convert_to_tensor=True)
        torch.testing.assert_close(book.plain, expected, atol=1e-5, rtol=1e-5)
        tokens = opened.tokenizer(text, return_tensors="pt")
        tokens.pop("token_type_ids", None)
        torch.testing.assert_close(opened(**tokens).chunk_vectors[0], book.plain, atol=1e-5, rtol=1e-5)
    whole = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(text, convert_to_tensor=True)
    torch.testing.assert_close(whole, book.document, atol=1e-5, rtol=1e-5)
    again = load_chunk_encoder(tmp_path / "model")
    assert again.fingerprint == again.encoder.fingerprint() == source.fingerprint
    torch.testing.assert_close(model.encode(text, chunk_encoder=again).plain, book.plain)
    lean = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16, include_chunk_encoder=False)
    lean.config.chunk_encoder_name = None
    lean.attach_chunk_encoder(source)
    torch.testing.assert_close(lean.encode(text).plain, book.plain)


def test_prompt_and_dense_layers_are_part_of_the_fingerprint(toy_encoder_path, tmp_path):
    torch.manual_seed(1)
    toy = SentenceTransformer(toy_encoder_path, device="cpu")[0]
    dense = {name: modules.Dense(32, 32, activation_function=kind()) for name, kind in (("a", Tanh), ("b", GELU))}
    dense["c"] = modules.Dense(32, 32)
    dense["b"].load_state_dict(dense["a"].state_dict())
    cases = [([], None), ([], "query: "), ([], "passage: "), *(([layer], None) for layer in dense.values())]
    found = [
        load_chunk_encoder(
            saved(tmp_path / str(number), [toy, modules.Pooling(32), *more, modules.Normalize()], prompt)
        )
        for number, (more, prompt) in enumerate(cases)
    ]
    assert len({source.fingerprint for source in found}) == len(found)
    assert len({source.encoder.identity() for source in found}) == len(found)
    model = NextLevelBertModel.from_chunk_encoder(found[1], chunk_size=16)
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.attach_chunk_encoder(found[2])
    # Layers over the chunks start from the encoder's own where sizes allow it, and have no such steps.
    for source in found:
        started = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)
        assert not hasattr(started.config.encoder_config, "sentence_steps")
        layer = "encoder.layer.0.output.dense.weight"
        assert torch.equal(started.encoder.state_dict()[layer], source.encoder.model.state_dict()[layer])


def test_an_activation_that_is_none():
    """A changed config.json must not make any class that torch.nn happens to have."""
    for name in ("Module", "MultiheadAttention", "no_such", "Linear"):
        with pytest.raises(ValueError, match=f"'{name}' is no activation"):
            DenseLayer(4, 4, True, name)


@pytest.mark.mpnet
def test_real_mpnet_as_sentence_transformers_has_it(mpnet_path):
    """all-mpnet-base-v2: padding id 1, positions from 2, 768 dimensions."""
    model = SentenceTransformer(mpnet_path, device="cpu")
    expected = model.encode(SENTENCES, convert_to_tensor=True)
    source = load_chunk_encoder(mpnet_path)
    assert source.max_chunk_size == 512
    torch.testing.assert_close(encode_sentences(source, SENTENCES), expected, atol=1e-5, rtol=0)


@pytest.mark.mpnet
def test_a_whole_model_around_real_mpnet(mpnet_path, tmp_path):
    document = " ".join(SENTENCES * 20)
    model = NextLevelBertModel.from_chunk_encoder(mpnet_path, chunk_size=64)
    assert (model.config.max_chunks, model.config.hidden_size) == (510, 768)
    model.save_pretrained(tmp_path)
    expected = model.encode(document).document
    again = SentenceTransformer(str(tmp_path), device="cpu").encode(document, convert_to_tensor=True)
    torch.testing.assert_close(again, expected, atol=1e-5, rtol=0)


def test_a_folder_that_does_not_say_how_it_pools(encoder, tmp_path):
    """sentence-transformers would take the mean, without normalisation."""
    with pytest.raises(ValueError, match=r"has no modules\.json, which says how it pools.* becomes one by"):
        load_chunk_encoder(encoder)
    folder = shutil.copytree(encoder, tmp_path / "broken")
    for content in ("{", "{}", "[]", "[1]", '["a"]', '[{"type": 3, "path": ""}]', '[{"type": "a"}]'):
        (folder / "modules.json").write_text(content)
        with pytest.raises(ValueError, match=r"broken cannot be opened: modules\.json is cut off or damaged"):
            load_chunk_encoder(folder)


def test_what_an_encoder_claims_and_code_of_its_own(toy_encoder_path, tmp_path):
    folder = shutil.copytree(toy_encoder_path, tmp_path / "claims")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1_000_000_000}))
    with pytest.raises(ValueError, match="num_hidden_layers = 1000000000"):
        load_chunk_encoder(folder)
    custom = {**config, "model_type": "custom", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(custom))
    with pytest.raises(ValueError, match=r"(?s)Cannot load .*claims.*trust_remote_code\) is never run"):
        load_chunk_encoder(folder)
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.LayerNorm.weight"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="NaN or infinity"):
        load_chunk_encoder(folder)


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("mean", False), ("cls", True)])
def test_pooling_is_part_of_the_fingerprint_and_older_ones_are_known(toy_encoder_path, tmp_path, pooling, normalize):
    original = SentenceTransformer(toy_encoder_path, device="cpu")
    steps = [original[0], modules.Pooling(32, pooling)] + ([modules.Normalize()] if normalize else [])
    SentenceTransformer(modules=steps, device="cpu").save_pretrained(str(tmp_path / "encoder"))
    source = load_chunk_encoder(tmp_path / "encoder")
    older = weights_fingerprint(source.encoder.model)  # what every encoder had
    assert (source.fingerprint == older) == ((pooling, normalize) == ("mean", True))
    assert source.fingerprint == source.encoder.fingerprint()
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16, include_chunk_encoder=False)
    rule, documents = model.config.chunking_rule(), [Document("a", "some text " * 9)]
    corpus = encode_corpus(documents, source, rule, tmp_path / "corpus", progress=False)
    earlier = dataclasses.replace(source, fingerprint=older)
    encode_corpus(documents, earlier, rule, tmp_path / "older", progress=False)
    encode_corpus(documents, source, rule, tmp_path / "older", progress=False).check_model(model.config)
    model.config.chunk_encoder_fingerprint = older
    corpus.check_model(model.config)
    model.attach_chunk_encoder(source)
    model.config.chunk_encoder_fingerprint = "0" * 64
    with pytest.raises(ValueError, match=r"encoder\.fingerprint"):
        corpus.check_model(model.config)
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.attach_chunk_encoder(source)


@pytest.mark.parametrize("cls", [NextLevelBertModel, HateModel, NextLevelBertForSequenceClassification])
def test_an_argument_with_a_slip_is_refused(cls, minilm):
    wanted = r"from_chunk_encoder takes fields of \w+, not chunk_sise\. The fields are .*chunk_size"
    with pytest.raises(ValueError, match=wanted):
        cls.from_chunk_encoder(minilm, chunk_sise=128)


def test_another_pooling_than_the_encoder_s_own(toy_encoder_path):
    """HATE's sentence vector: the output at [CLS], here normalised as the encoder does with its mean."""
    source, own = load_chunk_encoder(toy_encoder_path, pooling="cls"), load_chunk_encoder(toy_encoder_path)
    assert (source.encoder.pooling, own.encoder.pooling) == ("cls", "mean")
    assert source.fingerprint != own.fingerprint
    batch = own.tokenizer(["The ship sailed home."], return_tensors="pt")
    with torch.no_grad():
        states = own.encoder.model(**batch).last_hidden_state
        found = source.encoder(batch["input_ids"], batch["attention_mask"])
    expected = torch.nn.functional.normalize(states[:, 0], dim=-1) if own.encoder.normalize else states[:, 0]
    torch.testing.assert_close(found, expected)
