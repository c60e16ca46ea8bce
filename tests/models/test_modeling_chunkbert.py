"""ChunkBERT against the encoders of `transformers`, the paper's procedure, and a convolution worked
by hand."""

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, pipeline

from nextlevelbert import ChunkBertConfig, ChunkBertForSequenceClassification, ChunkBertModel
from nextlevelbert.models.modeling_chunkbert import TextCnnClassifier

from ..toys.tokens import ENCODERS, SIZE, batch
from ..toys.vectors import close


def tiny(cls=ChunkBertModel, encoder="bert", **values):
    torch.manual_seed(3)
    config = ChunkBertConfig(
        **{"encoder_config": ENCODERS[encoder].to_dict(), "chunk_size": 8, **values}
    )
    return cls(config).eval()


def last_five(encoder, ids, **inputs):
    """What the paper says, chunk by chunk, of an encoder of `transformers`."""
    output = encoder(input_ids=ids[None], output_hidden_states=True, **inputs)
    return torch.stack(output.hidden_states[-5:]).mean(0)[0]


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_features_are_those_of_the_encoder_chunk_by_chunk(encoder):
    """And so, with any number of chunks at once and any padding, the scores are the same."""
    model = tiny(ChunkBertForSequenceClassification, encoder, num_labels=3)
    documents, ids, mask = batch()

    features = model.model(ids, mask).last_hidden_state
    logits = model(ids, mask).logits

    for row, document in enumerate(documents):
        expected = torch.cat([last_five(model.model.encoder, chunk) for chunk in document.split(8)])
        close(features[row, : len(document)], expected)
        assert not features[row, len(document) :].any()
        close(model(document[None]).logits[0], logits[row])
    chunks = []
    model.model.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: chunks.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    # Ten chunks in all: those of padding alone are not read.
    for at_once, passes in ((1, [1] * 10), (5, [5, 5]), (4, [4, 4, 2]), (None, [10])):
        chunks.clear()
        model.config.chunk_batch_size = at_once
        close(model(ids, mask).logits, logits)
        assert chunks == passes
    _, left, left_mask = batch(side="left")
    close(model(left, left_mask).logits, logits)


@torch.no_grad()
def test_from_a_pretrained_encoder_with_the_sizes_of_the_paper(minilm_path):
    model = ChunkBertForSequenceClassification.from_encoder(minilm_path, num_labels=20)
    tokens = model.tokenizer(["Call me Ishmael.", "Some years ago."], padding=True)

    output = model.model(**tokens.convert_to_tensors("pt"))

    real = output.token_mask[0]
    close(output.pooler_output[0], output.last_hidden_state[0][real].mean(0))
    for layer, width in zip(model.classifier.convolutions, (3, 4, 5), strict=True):
        assert layer.weight.shape == (100, 384, width)
    assert model.classifier.projection.weight.shape == (20, 300)
    assert (model.config.chunk_size, model.config.max_training_tokens) == (128, 4096)
    assert model.config.num_averaged_layers == 5


@torch.no_grad()
def text_cnn(weights, biases=None, **values):
    """One filter a width over features of one dimension, projected by ones."""
    encoder = BertConfig(hidden_size=1, num_attention_heads=1, intermediate_size=1).to_dict()
    sizes = [len(weight) for weight in weights]
    values = {"num_filters": 1, "filter_sizes": sizes, "classifier_dropout": 0.0, **values}
    classifier = TextCnnClassifier(
        ChunkBertConfig(encoder_config=encoder, num_labels=len(weights), **values)
    )
    for index, weight in enumerate(weights):
        classifier.convolutions[index].weight.copy_(torch.tensor(weight).reshape(1, 1, -1))
        classifier.convolutions[index].bias.fill_(biases[index] if biases else 0.0)
    classifier.projection.weight.copy_(torch.eye(len(weights)))
    classifier.projection.bias.zero_()
    return classifier


def test_the_text_cnn_worked_by_hand():
    classifier = text_cnn([[1.0, 2.0, 3.0], [1.0, 0.0, 0.0, -1.0]])
    features = torch.tensor([1.0, 0.0, 2.0, 4.0, 1.0]).unsqueeze(-1)  # [5, 1]

    # width 3: 1+0+6 = 7, 0+4+12 = 16, 2+8+3 = 13; width 4: 1-4 = -3, 0-1 = -1, both below zero
    close(classifier(features, torch.tensor([5])), torch.tensor([[16.0, 0.0]]))
    # the first three tokens alone: 7; and with one zero behind them, for the wider filter: 1-0 = 1
    close(classifier(features[:3], torch.tensor([3])), torch.tensor([[7.0, 1.0]]))
    both = classifier(torch.cat([features[:3], features]), torch.tensor([3, 5]))
    close(both, torch.tensor([[7.0, 1.0], [16.0, 0.0]]))


@torch.no_grad()
def test_the_text_cnn_is_the_maximum_over_the_windows_of_each_document():
    """Worked out by torch's `unfold`: documents one by one, every window of a filter's width."""
    torch.manual_seed(0)
    encoder = BertConfig(hidden_size=6, num_attention_heads=1, intermediate_size=1).to_dict()
    config = ChunkBertConfig(
        encoder_config=encoder,
        num_labels=3,
        num_filters=7,
        filter_sizes=[3, 4, 5],
        classifier_dropout=0.0,
    )
    classifier = TextCnnClassifier(config)
    lengths = [9, 2, 5, 1, 4, 12]
    documents = [torch.randn(length, 6) for length in lengths]

    scores = classifier(torch.cat(documents), torch.tensor(lengths))

    for document, document_scores in zip(documents, scores, strict=True):
        features = []
        for width, layer in zip([3, 4, 5], classifier.convolutions, strict=True):
            zeros = torch.zeros(max(width - len(document), 0), 6)
            windows = torch.cat([document, zeros]).unfold(0, width, 1)  # [positions, D, width]
            responses = torch.einsum("pdw,fdw->pf", windows, layer.weight) + layer.bias
            features.append(responses.relu().amax(dim=0))
        projection = classifier.projection
        close(document_scores, projection.weight @ torch.cat(features) + projection.bias)


def test_neither_padding_nor_the_next_document_wins_the_maximum():
    classifier = text_cnn(
        [[1.0, 1.0, 1.0], [1.0] * 5], biases=[5.0, 5.0]
    )  # a window of padding would give 5
    features = torch.tensor(
        [-1.0, -1.0, -2.0, 3.0, 3.0, 3.0, 3.0, 3.0, -1.0, -1.0, -1.0]
    ).unsqueeze(-1)

    scores = classifier(features, torch.tensor([3, 5, 3]))

    # Windows across the documents would give more.
    close(scores, torch.tensor([[1.0, 1.0], [14.0, 20.0], [2.0, 2.0]]))


def test_training_is_cut_with_a_count_and_inference_never(transformers_log):
    model = tiny(max_training_tokens=16)
    model.encoder.eval()
    _, ids, mask = batch(lengths=(21, 3, 16, 17))
    model.training = True  # without the dropout, so that results can be compared

    output = model(ids, mask)

    assert "first 16 tokens" in transformers_log.text
    assert "2 of 4 documents of this batch lose 6 tokens" in transformers_log.text
    assert output.token_mask.sum(dim=1).tolist() == [16, 3, 16, 16]
    close(output.last_hidden_state[:, :16], model(ids[:, :16], mask[:, :16]).last_hidden_state)
    transformers_log.clear()
    model.eval()
    assert torch.equal(model(ids, mask).token_mask, mask.bool())
    model.config.max_training_tokens = None
    assert torch.equal(model.train()(ids, mask).token_mask, mask.bool())
    assert not transformers_log.text


@torch.no_grad()
def test_the_stock_pipeline_reads_long_texts_whole(toy_encoder_path, tmp_path, transformers_log):
    model = ChunkBertForSequenceClassification.from_encoder(
        toy_encoder_path, chunk_size=16, num_averaged_layers=3, id2label={0: "calm", 1: "angry"}
    )
    model.save_pretrained(tmp_path)
    text = "A longer text, which goes on and on, and then some more. " * 60
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    classify = pipeline("text-classification", str(tmp_path), tokenizer=tokenizer, device="cpu")
    scores = {row["label"]: row["score"] for row in classify(text, top_k=None)}
    expected = model.eval()(**model.tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]

    assert [scores["calm"], scores["angry"]] == pytest.approx(expected.tolist(), abs=1e-5)
    assert "longer than" not in transformers_log.text


def test_a_half_precision_configuration_makes_no_mixed_model():
    config = BertConfig(**SIZE, dtype="float16")

    model = ChunkBertForSequenceClassification(ChunkBertConfig(encoder_config=config, chunk_size=8))

    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@torch.no_grad()
def test_new_tokens_and_token_types():
    model = tiny()
    _, ids, mask = batch()
    types = (torch.arange(ids.shape[1]) > 10).long().expand_as(ids)

    features = model(ids, mask, types).last_hidden_state[0]

    for start in range(0, 37, 8):
        chunk = slice(start, start + 8)
        expected = last_five(model.encoder, ids[0, chunk], token_type_ids=types[:1, chunk])
        close(features[chunk], expected)
    model.resize_token_embeddings(204)
    assert ChunkBertConfig(**model.config.to_dict()).encoder_config.vocab_size == 204


def test_widths_of_filters_are_a_list_before_and_after_saving(tmp_path):
    config = ChunkBertConfig(filter_sizes=(2, 3))

    config.save_pretrained(tmp_path)

    assert config.filter_sizes == [2, 3]
    assert ChunkBertConfig.from_pretrained(tmp_path).filter_sizes == [2, 3]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"chunk_size": 39, "encoder": "roberta"}, "chunk_size must be 1 to 38"),
        ({"max_training_tokens": 0}, "max_tr"),
    ],
)
def test_configurations_that_are_refused(values, name):
    with pytest.raises(Exception, match=name):
        tiny(**values)


@torch.no_grad()
def test_the_pseudo_code_of_the_paper():
    """Appendix B: split along the tokens, stacked along the batch, five states averaged, joined
    along the tokens."""
    model = tiny()
    _, ids, _ = batch(lengths=(24, 24))
    stacked = torch.cat(ids.split(8, dim=1), dim=0)  # [3 * 2, 8]
    states = model.encoder(stacked, output_hidden_states=True).hidden_states
    expected = torch.cat(torch.stack(states)[-5:].mean(0).chunk(3), dim=1)  # [2, 24, D]

    close(model(ids).last_hidden_state, expected)
