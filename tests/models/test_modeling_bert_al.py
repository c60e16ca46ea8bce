"""BERT-AL against the encoders of `transformers`, torch's LSTM, and equations worked by hand."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AlbertConfig, AutoModel, XLNetConfig, pipeline

from nextlevelbert import BertAlConfig, BertAlForExtractiveSummarization, BertAlModel
from nextlevelbert.models import modeling_bert_al
from nextlevelbert.models.modeling_bert_al import LayerNormLSTM

from ..toys.tokens import CLS, ENCODERS, SIZE, batch
from ..toys.vectors import close


def tiny(cls=BertAlModel, encoder="bert", **values):
    torch.manual_seed(3)
    defaults = {
        "encoder_config": ENCODERS[encoder].to_dict(),
        "segment_length": 8,
        "cls_token_id": CLS,
    }
    return cls(BertAlConfig(**{**defaults, **values})).eval()


def awake(model):
    """Draws the projections that start at zero, so that the recurrence is heard."""
    torch.manual_seed(9)
    for recurrence in model.base_model.recurrences:
        if recurrence.residual is not None:
            torch.nn.init.normal_(recurrence.residual.weight, std=0.2)
    return model


# The LSTM.


@torch.no_grad()
def test_one_step_worked_by_hand():
    """Of two values the layer normalisation gives d and -d, where d is 1 but for its epsilon."""
    lstm = LayerNormLSTM(2)
    lstm.input_projection.weight.zero_()
    lstm.cell_weight.copy_(torch.tensor([3.0, 2.0]))
    lstm.cell_bias.copy_(torch.tensor([0.5, 0.0]))
    # The first value of each gate is 100, 200, 300 or 400 times the input, the second is 0, so
    # that one normalisation over all gates would give other values.
    lstm.input_projection.weight[0::2, 0] = torch.tensor([100.0, 200.0, 300.0, 400.0])
    lstm.gate_weight.copy_(torch.tensor([[1.0, 2.0], [0.5, 0.5], [2.0, 1.0], [1.0, 3.0]]))
    lstm.gate_bias.copy_(torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 0.5], [0.2, 0.0]]))
    outputs, (h, c) = lstm(
        torch.tensor([[[1.0, -5.0]]]), (torch.zeros(1, 2), torch.tensor([[0.4, -0.6]]))
    )

    def sigmoid(value):
        return 1 / (1 + math.exp(-value))

    # Each gate's two values are 1 and -1 when normalised.
    first = sigmoid(1.5) * 0.4 + sigmoid(1.0) * math.tanh(2.0)
    second = sigmoid(0.5) * -0.6 + sigmoid(-2.0) * math.tanh(-0.5)
    assert c[0].tolist() == pytest.approx([first, second], abs=1e-5)
    assert first > second  # so the cell is 1 and -1 when normalised
    read = [sigmoid(1.2) * math.tanh(3.5), sigmoid(-3.0) * math.tanh(-2.0)]
    assert h[0].tolist() == pytest.approx(read, abs=1e-4)
    assert torch.equal(outputs[0], h)


@torch.no_grad()
def test_without_normalisation_it_is_the_lstm_of_torch(monkeypatch):
    monkeypatch.setattr(modeling_bert_al, "layer_norm", lambda values, *rest, **named: values)
    torch.manual_seed(0)
    lstm = LayerNormLSTM(6)
    plain = torch.nn.LSTM(6, 6)
    for weight in (lstm.input_projection.weight, lstm.recurrent_weight, lstm.gate_bias):
        torch.nn.init.normal_(weight)
    plain.weight_ih_l0.copy_(lstm.input_projection.weight)
    plain.weight_hh_l0.copy_(lstm.recurrent_weight)
    plain.bias_ih_l0.copy_(lstm.gate_bias.flatten())
    plain.bias_hh_l0.zero_()
    inputs = torch.randn(5, 3, 6)
    h, c = torch.randn(2, 1, 3, 6)

    outputs, state = lstm(inputs, (h[0], c[0]))

    expected, (last_h, last_c) = plain(inputs, (h, c))
    close(outputs, expected)
    close(state, (last_h[0], last_c[0]))


@torch.no_grad()
def test_each_gate_has_its_own_normalisation_before_the_cell_of_torch():
    """torch's `LSTMCell` with the identity as input weight gets the normalised gates as input."""
    torch.manual_seed(0)
    size = 6
    lstm = LayerNormLSTM(size).double()
    for parameter in lstm.parameters():
        torch.nn.init.normal_(parameter)
    inputs = torch.randn(5, 3, size).double()
    h, c = torch.randn(2, 3, size).double()
    cell = torch.nn.LSTMCell(4 * size, size, bias=False).double()
    cell.weight_ih.copy_(torch.eye(4 * size))
    cell.weight_hh.zero_()

    outputs, state = lstm(inputs, (h, c))

    weights = zip(lstm.gate_weight, lstm.gate_bias, strict=True)
    scales = [{"weight": weight, "bias": bias} for weight, bias in weights]
    for step, output in zip(inputs, outputs, strict=True):
        sums = lstm.input_projection.weight @ step.T + lstm.recurrent_weight @ h.T
        gates = []
        for rows, scale in zip(sums.T.split(size, dim=1), scales, strict=True):
            gates.append(F.layer_norm(rows, (size,), **scale))
        _, c = cell(torch.cat(gates, dim=1), (h, c))
        h = gates[3].sigmoid() * F.layer_norm(c, (size,), lstm.cell_weight, lstm.cell_bias).tanh()
        close(output, h)
    close(state, (h, c))


def test_the_lstm_under_bfloat16():
    torch.manual_seed(0)
    lstm = LayerNormLSTM(6)
    inputs = torch.randn(5, 3, 6)
    for weight in lstm.parameters():
        torch.nn.init.normal_(weight)
    exact = lstm(inputs)[0]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, (_, cell) = lstm(inputs)

    assert (outputs.dtype, cell.dtype) == (torch.bfloat16, torch.float32)
    outputs.float().sum().backward()
    assert lstm.recurrent_weight.grad.dtype == torch.float32
    close(outputs.float(), exact, atol=0.1)


# The model.


@torch.no_grad()
def test_the_forget_gates_of_a_new_model_start_open():
    for recurrence in tiny().recurrences:
        assert recurrence.lstm.gate_bias.mean(dim=1).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_new_residual_model_is_plain_bert(minilm_path):
    plain = AutoModel.from_pretrained(minilm_path, add_pooling_layer=False)

    model = BertAlModel.from_encoder(minilm_path, recurrence="residual")

    assert model.encoder.state_dict().keys() == plain.state_dict().keys()
    tokens = model.tokenizer(["Call me Ishmael.", "Some years ago."], padding=True)
    tokens = tokens.convert_to_tensors("pt")
    real = tokens["attention_mask"].bool()
    features = model(**tokens).last_hidden_state
    assert torch.equal(features[real], plain(**tokens).last_hidden_state[real])
    assert not features[~real].any()


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_a_new_residual_model_is_the_encoder_segment_by_segment(encoder):
    documents, ids, mask = batch()

    model = tiny(encoder=encoder)

    assert len(model.recurrences) == 4
    features = model(ids, mask).last_hidden_state
    without = tiny(encoder=encoder, recurrence="none")
    assert torch.equal(features, without(ids, mask).last_hidden_state)
    for row, document in enumerate(documents):
        for start in range(0, len(document), 8):
            part = document[start : start + 8]
            expected = model.encoder(part[None]).last_hidden_state[0]
            close(features[row, start : start + len(part)], expected)
    # Once the recurrence is heard, information flows forward only.
    ids = ids[:1]
    before = awake(model)(ids).last_hidden_state[0]
    assert not torch.allclose(before, features[0], atol=1e-3)
    ids[0, 19] = 55  # in the third segment
    after = model(ids).last_hidden_state[0]
    assert torch.equal(before[:16], after[:16])
    assert (before[16:] != after[16:]).any(dim=1).all()  # attention spreads it within the segments


@pytest.mark.parametrize("recurrence", ["replace", "residual"])
@torch.no_grad()
def test_layer_by_layer_and_channel_by_channel(recurrence):
    """The paper's equations with loops: segments through a layer, then each position along the
    segments."""
    model = awake(tiny(recurrence=recurrence))
    _, ids, _ = batch(lengths=(24,))
    states = model.encoder.embeddings(ids.view(3, 8))  # [3, 8, D]

    for layer, behind in zip(model.encoder.encoder.layer, model.recurrences, strict=True):
        for segment in range(3):
            states[segment] = layer(states[segment][None])[0]
        for position in range(8):
            h, _ = behind.lstm(states[:, position, None])  # [3, 1, D]
            if recurrence == "replace":
                states[:, position] = h[:, 0]
            else:
                states[:, position] += behind.residual(h[:, 0])

    close(model(ids).last_hidden_state[0], states.flatten(0, 1))


@torch.no_grad()
def test_the_recurrence_around_xlnet_worked_by_hand():
    """XLNet's layers give [position, segment, D]: eight segments of eight must not be confused."""
    config = XLNetConfig(vocab_size=200, d_model=32, n_layer=1, n_head=4, d_inner=48)
    model = tiny(encoder_config=config, recurrence="replace")
    _, ids, _ = batch(lengths=(64,))
    states = model.encoder(ids.view(8, 8)).last_hidden_state  # [segment, position, D]

    for position in range(8):
        states[:, position] = model.recurrences[0].lstm(states[:, position, None])[0][:, 0]

    close(model(ids).last_hidden_state[0], states.flatten(0, 1))


@torch.no_grad()
def test_each_segment_is_read_with_its_own_token_types():
    model = tiny(recurrence="none")
    _, ids, mask = batch(lengths=(20, 13))
    types = (ids == CLS).cumsum(dim=1) % 2  # in turn by sentence

    features = model(ids, mask, types).last_hidden_state

    for row, start, end in ((0, 0, 8), (0, 8, 16), (0, 16, 20), (1, 0, 8), (1, 8, 13)):
        part = ids[row : row + 1, start:end]
        expected = model.encoder(part, token_type_ids=types[row : row + 1, start:end])
        close(features[row, start:end], expected.last_hidden_state[0])
    assert not torch.allclose(features, model(ids, mask).last_hidden_state, atol=0.01)


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_any_pass_and_any_padding_give_the_same(encoder):
    model = awake(tiny(BertAlForExtractiveSummarization, encoder, tokens_at_once=None))
    documents, ids, mask = batch()

    whole = model(ids, mask)

    assert whole.sentence_mask.sum(dim=1).tolist() == [6, 1, 2, 3]
    for at_once in (1, 64):
        model.config.tokens_at_once = at_once
        close(model(ids, mask).logits, whole.logits)
    lengths = [len(part) for part, _ in model.model.passes(ids, mask.bool().numpy(), None)]
    assert lengths == [43, 17, 5]
    _, left, left_mask = batch(side="left")
    close(model(left, left_mask).logits, whole.logits)
    for row, document in enumerate(documents):
        alone = model(document[None]).logits[0]
        close(alone, whole.logits[row, : len(alone)])
    # The scores are those of the outputs at each [CLS].
    at_cls = model.model(ids, mask).last_hidden_state[(ids == CLS) & mask.bool()]
    close(whole.logits[whole.sentence_mask], model.classifier(at_cls).squeeze(-1))


def test_the_loss_is_that_of_torch_document_by_document():
    model = tiny(BertAlForExtractiveSummarization)
    _, ids, mask = batch(lengths=(15, 7, 7))
    labels = torch.tensor([[1, -100, 0], [1, -100, -100], [-100, -100, -100]])

    output = model(ids, mask, labels=labels)

    loss = F.binary_cross_entropy_with_logits
    first = loss(output.logits[0, [0, 2]], torch.tensor([1.0, 0.0]))
    second = loss(output.logits[1, :1], torch.ones(1))
    close(output.loss, (first + second) / 2)


def test_labels_behind_the_cut_are_left_out(transformers_log):
    model = tiny(BertAlForExtractiveSummarization, max_training_tokens=8, classifier_dropout=0.0)
    _, ids, mask = batch(lengths=(15, 7))
    labels = torch.tensor([[1, 0, 1], [0, -100, -100]])
    model.model.encoder.eval()
    model.training = True
    cut = model(ids, mask, labels=labels)
    model.eval()

    short = model(ids[:, :8], mask[:, :8], labels=labels[:, :2])

    assert "1 of 2 documents of this batch lose 7 tokens" in transformers_log.text
    close((cut.loss, cut.logits), (short.loss, short.logits))


@torch.no_grad()
def test_threads_do_not_hear_each_other():
    model = awake(tiny(BertAlForExtractiveSummarization))
    _, ids, mask = batch()
    expected = model(ids, mask).logits

    with ThreadPoolExecutor(4) as pool:
        for logits in pool.map(lambda _: model(ids, mask).logits, range(12)):
            close(logits, expected, atol=1e-6)


@pytest.fixture(scope="module")
def summarizer(toy_encoder_path):
    torch.manual_seed(5)
    return awake(BertAlForExtractiveSummarization.from_encoder(toy_encoder_path, segment_length=16))


def test_a_pipeline_for_tokens_refuses_scores_of_sentences(summarizer, tmp_path):
    summarizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="AutoModelForTokenClassification"):
        pipeline("token-classification", model=str(tmp_path), device="cpu")


def test_a_summary_stands_in_its_document(summarizer):
    text = (
        "  It rained all day, Mr. Smith said.\n\nA heading\n\nThe match was off! [CLS] is a word."
        " Tea was served."
    )

    summary = summarizer.train().summarize(text, sentences=2)  # without the dropout of training

    assert summary == summarizer.summarize(text, sentences=2)
    assert [text[start:end] for start, end in summary.spans] == summary.sentences
    best = np.argsort(summary.scores)[-2:]
    assert summary.indices == sorted(best.tolist())
    assert str(summary) == "\n".join(summary.sentences)
    everything = summarizer.summarize(text, sentences=99)
    assert everything.sentences == [
        "It rained all day, Mr. Smith said.",
        "A heading",
        "The match was off!",
        "[CLS] is a word.",
        "Tea was served.",
    ]
    same = summarizer.summarize(everything.sentences, sentences=2)
    assert (same.indices, same.scores) == (summary.indices, summary.scores)
    start, end = same.spans[1]
    assert "\n".join(everything.sentences)[start:end] == summary.sentences[1]
    summarizer.config.return_dict = False
    assert summarizer.summarize(text, sentences=2) == summary
    summarizer.config.return_dict = True
    repeated = summarizer.summarize(["The match was off again."] * 3, trigram_blocking=True)
    assert len(repeated.indices) == 1
    with pytest.raises(ValueError, match="sentences"):
        summarizer.summarize(text, sentences=0)


def test_encoders_without_a_stack_of_layers():
    _, ids, mask = batch(lengths=(15, 7))
    albert = AlbertConfig(**SIZE, embedding_size=16)

    with pytest.raises(ValueError, match="no stack of 4 layers"):
        BertAlModel(BertAlConfig(encoder_config=albert, segment_length=8))
    BertAlModel(BertAlConfig(encoder_config=albert, segment_length=8, recurrence="none")).eval()(
        ids, mask
    )
