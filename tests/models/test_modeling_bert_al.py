"""BERT-AL against the encoders of `transformers`, torch's LSTM, and equations worked by hand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import (
    AlbertConfig,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
    XLMConfig,
)

from nextlevelbert import BertAlConfig, BertAlForExtractiveSummarization, BertAlForSequenceClassification, BertAlModel
from nextlevelbert.models.bert_al_lstm import LayerNormLSTM
from nextlevelbert.models.bert_al_sentences import encode_sentences, pad_batch

SIZE = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZE |= {"intermediate_size": 48, "max_position_embeddings": 40}
ENCODERS = {
    "bert": BertConfig(**SIZE),
    "roberta": RobertaConfig(**SIZE),
    "mpnet": MPNetConfig(**SIZE),
    "distilbert": DistilBertConfig(
        vocab_size=200, dim=32, n_layers=3, n_heads=4, hidden_dim=48, max_position_embeddings=40
    ),
    "modernbert": ModernBertConfig(**SIZE, pad_token_id=0, cls_token_id=1, sep_token_id=2, local_attention=16),
}
CLS = 7


def tiny(cls=BertAlModel, encoder="bert", **values):
    torch.manual_seed(3)
    defaults = {"encoder_config": ENCODERS[encoder].to_dict(), "segment_length": 8, "cls_token_id": CLS}
    return cls(BertAlConfig(**{**defaults, **values})).eval()


def awake(model):
    """Draws the projections that start at zero, so that the recurrence is heard."""
    torch.manual_seed(9)
    for recurrence in model.base_model.recurrences:
        if recurrence.residual is not None:
            torch.nn.init.normal_(recurrence.residual.weight, std=0.2)
    return model


def batch(lengths=(37, 3, 8, 17), side="right"):
    """Documents of random ids with a [CLS] in front and one every seven tokens, padded on one side."""
    generator = torch.Generator().manual_seed(0)
    documents = [torch.randint(10, 200, (length,), generator=generator) for length in lengths]
    for document in documents:
        document[::7] = CLS
    longest = max(lengths)
    ids, mask = torch.zeros(len(lengths), longest, dtype=torch.long), torch.zeros(len(lengths), longest).long()
    for row, document in enumerate(documents):
        place = slice(0, len(document)) if side == "right" else slice(longest - len(document), longest)
        ids[row, place], mask[row, place] = document, 1
    return documents, ids, mask


# The model.


@torch.no_grad()
def test_one_segment_without_recurrence_is_plain_bert(minilm_path):
    plain = AutoModel.from_pretrained(minilm_path)
    tokens = AutoTokenizer.from_pretrained(minilm_path)(
        ["Call me Ishmael.", "Some years ago, never mind how long."], padding=True, return_tensors="pt"
    )
    expected = plain(**tokens, output_hidden_states=True)
    real = tokens["attention_mask"].bool()
    for recurrence in ("none", "residual"):
        model = BertAlModel.from_encoder(minilm_path, recurrence=recurrence)
        found = model(**tokens, output_hidden_states=True)
        assert torch.equal(found.last_hidden_state[real], expected.last_hidden_state[real])
        for ours, theirs in zip(found.hidden_states, expected.hidden_states, strict=True):
            assert torch.equal(ours[real], theirs[real])
        assert not found.last_hidden_state[~real].any()


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_a_new_residual_model_is_the_encoder_segment_by_segment(encoder):
    documents, ids, mask = batch()
    model = tiny(encoder=encoder)
    assert len(model.recurrences) == 3
    found = model(ids, mask).last_hidden_state
    assert torch.equal(found, tiny(encoder=encoder, recurrence="none")(ids, mask).last_hidden_state)
    for row, document in enumerate(documents):
        expected = torch.cat([model.encoder(part[None]).last_hidden_state[0] for part in document.split(8)])
        torch.testing.assert_close(found[row, : len(document)], expected, atol=1e-5, rtol=0)
    assert not torch.allclose(awake(model)(ids, mask).last_hidden_state, found, atol=1e-3)


@pytest.mark.parametrize("recurrence", ["replace", "residual"])
@torch.no_grad()
def test_layer_by_layer_and_channel_by_channel(recurrence):
    """The paper's equations with loops: segments through a layer, then each position along the segments."""
    model = awake(tiny(recurrence=recurrence))
    _, ids, _ = batch(lengths=(24,))
    states = [model.encoder.embeddings(part) for part in ids.split(8, dim=1)]
    for layer, own in zip(model.encoder.encoder.layer, model.recurrences, strict=True):
        states = torch.stack([layer(part)[0] for part in states])  # [3, 8, D]
        channels = []
        for position in range(8):
            h, _ = own.lstm(states[:, position, None], fused=False)  # [3, 1, D]
            channels.append(h[:, 0] if own.residual is None else states[:, position] + own.residual(h[:, 0]))
        states = torch.stack(channels, dim=1).unsqueeze(1)
    torch.testing.assert_close(model(ids).last_hidden_state[0], states.flatten(0, 2), atol=1e-5, rtol=0)


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_information_flows_forward_only(encoder):
    model = awake(tiny(encoder=encoder))
    _, ids, _ = batch(lengths=(40,))
    before = model(ids).last_hidden_state[0].split(8)
    ids[0, 19] = 55  # in the third segment
    after = model(ids).last_hidden_state[0].split(8)
    assert [torch.equal(one, other) for one, other in zip(before, after, strict=True)] == [True, True] + [False] * 3
    changed = (before[3] != after[3]).any(dim=1)
    assert changed.all()  # also where the channel saw no change: attention spreads it within the segment


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_any_pass_and_any_padding_give_the_same(encoder):
    model = awake(tiny(BertAlForExtractiveSummarization, encoder, tokens_at_once=None))
    documents, ids, mask = batch()
    whole = model(ids, mask)
    assert whole.sentence_mask.sum(dim=1).tolist() == [6, 1, 2, 3]
    for at_once in (1, 32, 64, 1000):
        model.config.tokens_at_once = at_once
        torch.testing.assert_close(model(ids, mask).logits, whole.logits, atol=1e-5, rtol=0)
        states = model.model(ids, mask, output_hidden_states=True)
    _, left, left_mask = batch(side="left")
    torch.testing.assert_close(model(left, left_mask).logits, whole.logits, atol=1e-5, rtol=0)
    for row, document in enumerate(documents):
        alone = model(document[None]).logits[0]
        torch.testing.assert_close(alone, whole.logits[row, : len(alone)], atol=1e-5, rtol=0)
    # The scores are those of the outputs at each [CLS], and the hidden states end in them.
    at_cls = model.classifier(states.last_hidden_state).squeeze(-1)[(ids == CLS) & mask.bool()]
    torch.testing.assert_close(whole.logits[whole.sentence_mask], at_cls, atol=1e-5, rtol=0)
    assert len(states.hidden_states) == 4


@pytest.mark.parametrize("recurrence", ["replace", "residual"])
@pytest.mark.parametrize("cls", [BertAlForExtractiveSummarization, BertAlForSequenceClassification])
def test_the_gradient_reaches_every_parameter(cls, recurrence):
    model = awake(tiny(cls, recurrence=recurrence, num_labels=3, tokens_at_once=32)).train()
    _, ids, mask = batch(lengths=(37, 12))
    labels = torch.tensor([0, 2])
    if cls is BertAlForExtractiveSummarization:
        labels = torch.tensor([[1, 0, 0, 1, 0, -100], [0, 1, -100, -100, -100, -100]])
    model(ids, mask, torch.zeros_like(ids), labels=labels).loss.backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert [name for name in without if not name.endswith("key.bias")] == []


def test_the_loss_is_that_of_torch_document_by_document():
    model = tiny(BertAlForExtractiveSummarization)
    _, ids, mask = batch(lengths=(15, 7, 7))
    output = model(ids, mask, labels=torch.tensor([[1, -100, 0], [1, -100, -100], [-100, -100, -100]]))
    first, second = output.logits[0, [0, 2]], output.logits[1, :1]
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    expected = (loss(first, torch.tensor([1.0, 0.0])) + loss(second, torch.ones(1))) / 2
    torch.testing.assert_close(output.loss, expected)


def test_checkpointed_activations_change_no_gradient():
    _, ids, mask = batch()
    gradients = []
    for checkpointed in (False, True):
        model = awake(tiny(BertAlForSequenceClassification, num_labels=3, tokens_at_once=64, classifier_dropout=0.0))
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if checkpointed:
            model.activation_checkpointing_enable()
        model.train()(ids, mask, labels=torch.tensor([0, 1, 2, 0])).loss.backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, other, atol=1e-6, rtol=0)


def test_labels_behind_the_cut_are_left_out():
    model = tiny(BertAlForExtractiveSummarization, max_training_tokens=8, classifier_dropout=0.0)
    _, ids, mask = batch(lengths=(15, 7))
    labels = torch.tensor([[1, 0, 1], [0, -100, -100]])
    model.model.encoder.eval()
    model.training = True
    with pytest.warns(UserWarning, match="1 of 2 documents of this batch lose 7 tokens"):
        cut = model(ids, mask, labels=labels)
    model.eval()
    short = model(ids[:, :8], mask[:, :8], labels=labels[:, :2])
    torch.testing.assert_close((cut.loss, cut.logits), (short.loss, short.logits))


@torch.no_grad()
def test_threads_do_not_hear_each_other():
    model = awake(tiny(BertAlForExtractiveSummarization))
    _, ids, mask = batch()
    expected = model(ids, mask).logits
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: model(ids, mask).logits, range(40)):
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_training_is_cut_with_a_count_and_inference_never():
    model = tiny(max_training_tokens=16)
    _, ids, mask = batch()
    with pytest.warns(UserWarning, match=r"first 16 tokens.*2 of 4 documents of this batch lose 22 tokens"):
        assert model.train()(ids, mask).token_mask.sum(dim=1).tolist() == [16, 3, 8, 16]
    assert model.eval()(ids, mask).token_mask.sum() == 65


# Checkpoints.

TEXT = "It rained. The match was called off. Tea was served. " * 8


@pytest.fixture(scope="module")
def saved(toy_encoder_path, tmp_path_factory):
    """A summariser around the toy encoder, saved."""
    torch.manual_seed(5)
    model = awake(BertAlForExtractiveSummarization.from_encoder(toy_encoder_path, segment_length=16))
    folder = tmp_path_factory.mktemp("bert_al")
    model.save_pretrained(folder)
    return model, str(folder)


@torch.no_grad()
def test_saved_and_loaded_it_is_the_same(saved):
    model, folder = saved
    again = AutoModelForTokenClassification.from_pretrained(folder)
    assert type(again) is BertAlForExtractiveSummarization
    assert type(AutoConfig.from_pretrained(folder)) is BertAlConfig
    assert again.config.to_diff_dict() == model.config.to_diff_dict()
    assert again.summarize(TEXT).scores == pytest.approx(model.summarize(TEXT).scores, abs=1e-6)
    base = AutoModel.from_pretrained(folder)
    tokens = base.tokenizer(TEXT, return_tensors="pt")
    expected = model.model(**tokens)
    assert type(base) is BertAlModel
    torch.testing.assert_close(base(**tokens).last_hidden_state, expected.last_hidden_state, atol=1e-6, rtol=0)
    vector = SentenceTransformer(folder, device="cpu").encode(TEXT, convert_to_tensor=True)
    torch.testing.assert_close(vector, expected.pooler_output[0], atol=1e-5, rtol=0)
    classifier = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3, ignore_mismatched_sizes=True)
    torch.testing.assert_close(
        classifier(**tokens).logits, classifier.classifier(expected.pooler_output), atol=1e-5, rtol=0
    )


def test_an_adapter_with_lstms_comes_back(saved, tmp_path):
    model, folder = saved
    ids, types = encode_sentences(["It rained.", "Tea was served.", "The match was off."], model.tokenizer)
    tokens = pad_batch([ids], [types], 0)
    settings = LoraConfig(target_modules=["query", "value"], modules_to_save=["classifier", "lstm", "residual"])
    adapted = get_peft_model(AutoModelForTokenClassification.from_pretrained(folder), settings)
    before = {name: weight.clone() for name, weight in adapted.named_parameters()}
    optimizer = torch.optim.AdamW([weight for weight in adapted.parameters() if weight.requires_grad], lr=0.1)
    adapted.train()(**tokens, labels=torch.tensor([[1, 0, 0]])).loss.backward()
    optimizer.step()
    changed = {name for name, weight in adapted.named_parameters() if not torch.equal(weight, before[name])}
    assert any(".lstm." in name for name in changed)
    assert all("lora_" in name or "modules_to_save" in name for name in changed)
    adapted.eval().save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(AutoModelForTokenClassification.from_pretrained(folder), tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(again(**tokens).logits, adapted(**tokens).logits, atol=1e-6, rtol=0)
        exact = again.half().float()(**tokens).logits
        assert torch.isfinite(again.bfloat16()(**tokens).logits).all()
    assert torch.isfinite(exact).all()


@pytest.mark.parametrize(
    ("cls", "task"),
    [
        (BertAlForExtractiveSummarization, "TOKEN_CLS"),
        (BertAlForSequenceClassification, "SEQ_CLS"),
        (BertAlModel, "FEATURE_EXTRACTION"),
    ],
)
def test_adapters_that_name_their_task(cls, task):
    model = awake(tiny(cls))
    _, ids, mask = batch()
    expected = model(ids, mask)[0]
    adapted = get_peft_model(
        model, LoraConfig(task_type=task, target_modules=["query", "value", "input_projection", "residual"])
    )
    found = adapted.eval()(input_ids=ids, attention_mask=mask)[0]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)  # a new adapter changes nothing
    found.sum().backward()
    adapters = [name for name, weight in adapted.named_parameters() if "lora_B" in name and weight.grad is None]
    assert adapters == []  # and each is heard


def test_what_a_checkpoint_lacks_is_new_and_nothing_else(tmp_path):
    model = tiny()
    for recurrence in model.recurrences:
        torch.nn.init.normal_(recurrence.lstm.gate_bias)
        torch.nn.init.normal_(recurrence.residual.weight)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    for name in ("recurrences.1.lstm.cell_bias", "recurrences.2.residual.weight"):
        del stored[name]
    save_file(stored, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "checksums.json").unlink()
    again = BertAlModel.from_pretrained(tmp_path)
    torch.testing.assert_close(again.recurrences[1].lstm.gate_bias, model.recurrences[1].lstm.gate_bias)
    assert not again.recurrences[1].lstm.cell_bias.any()
    assert not again.recurrences[2].residual.weight.any()


# Summaries.


def test_a_summary_stands_in_its_document(saved):
    model, _ = saved
    text = "  It rained all day, Mr. Smith said.\n\nA heading\n\nThe match was off! [CLS] is a word. Tea was served."
    summary = model.train().summarize(text, sentences=2)
    assert model.training
    model.eval()
    assert len(summary.scores) == 5
    assert [text[start:end] for start, end in summary.spans] == summary.sentences
    best = sorted(range(5), key=lambda number: -summary.scores[number])[:2]
    assert summary.indices == sorted(best)
    assert str(summary) == "\n".join(summary.sentences)
    model.model.encoder.eval()  # as of one that is frozen
    model.train()
    model.model.encoder.eval()
    everything = model.summarize(text, sentences=99)
    assert model.training
    assert not model.model.encoder.training
    model.eval()
    assert everything.sentences == [
        "It rained all day, Mr. Smith said.", "A heading", "The match was off!", "[CLS] is a word.", "Tea was served."
    ]  # fmt: skip
    given = model.summarize(everything.sentences, sentences=2)
    assert (given.indices, given.scores) == (summary.indices, summary.scores)
    assert ["\n".join(everything.sentences)[start:end] for start, end in given.spans] == summary.sentences
    assert model.summarize("One").sentences == ["One"]
    longer = "so it went on and on, " * 30  # one sentence of several segments
    assert model.summarize([longer, "The end."], sentences=1).sentences[0] in (longer, "The end.")
    repeated = model.summarize(["The match was off again."] * 3, trigram_blocking=True)
    assert len(repeated.indices) == 1


@pytest.mark.parametrize(
    ("document", "values", "error", "message"),
    [
        ("", {}, ValueError, r"The document has no words \(0 characters\)"),
        (" \n\n ", {}, ValueError, "has no words"),
        ([], {}, ValueError, "has no sentences"),
        (["A sentence.", " "], {}, ValueError, r"Sentences \[1\] of the document are blank"),
        (7, {}, TypeError, "Expected a text"),
        ("A sentence.", {"sentences": 0}, ValueError, "sentences must be 1 or more, got 0"),
    ],
)
def test_documents_that_are_refused(saved, document, values, error, message):
    with pytest.raises(error, match=message):
        saved[0].summarize(document, **values)


def test_inputs_that_are_refused(toy_encoder_path):
    model = tiny(BertAlForExtractiveSummarization)
    _, ids, mask = batch(lengths=(15, 7))
    for labels, message in (
        (
            torch.tensor([[1, 0, 0]]),
            r"labels must be \(2, 3\), one per sentence of the longest document, got \(1, 3\)",
        ),
        (torch.tensor([[1, 0, 2], [0, -100, -100]]), r"documents \[0\] have others"),
        (torch.tensor([[1, 0, 1], [0, 0, -100]]), r"documents \[1\] have others"),
        (torch.full((2, 3), -100), "all of them are -100"),
    ):
        with pytest.raises(ValueError, match=message):
            model(ids, mask, labels=labels)
    with pytest.raises(ValueError, match=r"Documents \[1\] of the batch have no sentence: none of their ids is 7"):
        model(torch.tensor([[CLS, 20], [20, 21]]))
    with pytest.raises(ValueError, match=r"Documents \[1\] of the batch have no token"):
        model(ids, torch.stack([mask[0], torch.zeros_like(mask[0])]))
    with pytest.raises(ValueError, match="leave out inputs_embeds and output_attentions"):
        model(ids, mask, inputs_embeds=torch.zeros(1, 3, 32))
    with pytest.raises(ValueError, match="segment_length must be 1 to 40, the positions of the encoder, got 41"):
        tiny(segment_length=41)
    with pytest.raises(ValueError, match="tokens_at_once must be at least 1, got 0"):
        tiny(tokens_at_once=0)
    with pytest.raises(
        ValueError, match=r"token_type_ids must be \(2, 15\) like input_ids, from 0 to 1, got \(2, 15\) w"
    ):
        model(ids, mask, torch.full_like(ids, 2))
    albert = AlbertConfig(**SIZE, embedding_size=16)
    with pytest.raises(ValueError, match="AlbertModel has no stack of 3 layers"):
        BertAlModel(BertAlConfig(encoder_config=albert, segment_length=8))
    with pytest.raises(ValueError, match="XLMModel has no stack of 3 layers"):
        BertAlModel(BertAlConfig(encoder_config=XLMConfig(n_words=200, emb_dim=32, n_layers=3, n_heads=4)))
    BertAlModel(BertAlConfig(encoder_config=albert, segment_length=8, recurrence="none")).eval()(ids, mask)
    with pytest.raises(ValueError, match="at least one step"):
        LayerNormLSTM(4)(torch.zeros(0, 2, 4))
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    model.tokenizer = AutoTokenizer.from_pretrained(toy_encoder_path)
    model.resize_token_embeddings(len(model.tokenizer))
    model.config.cls_token_id = model.tokenizer.cls_token_id
    with pytest.raises(ValueError, match=r"because the weight classifier\.bias does"):
        model.summarize(["One.", "Two."])
