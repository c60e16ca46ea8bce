"""What CDLM's models compute: masked words, matching, pairs of mentions and answers, worked by
hand."""

import pytest
import torch

from nextlevelbert import (
    CdlmConfig,
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
)

from ..toys.cdlm import (
    ANSWERS,
    PAIRS,
    SIZE,
    SPANS,
    batch,
    globals_of,
    masked_batch,
    mentions_batch,
    question_batch,
    tiny,
)
from ..toys.vectors import close

# Masked words.


def test_the_loss_over_words_is_that_of_torch_and_sparse_prediction_has_it():
    ids, mask, labels = masked_batch()
    outputs = []
    gradients = []

    for sparse in (False, True):
        model = tiny(CdlmForMaskedLM, sparse_prediction=sparse)
        outputs.append(model(ids, mask, labels=labels))
        outputs[-1].loss.backward()
        gradients.append([weight.grad for weight in model.parameters()])
        assert model(ids, mask).logits.shape == (
            *ids.shape,
            100,
        )  # without labels there is nothing to leave out
    whole, chosen = outputs
    expected = torch.nn.functional.cross_entropy(whole.logits.flatten(0, 1), labels.flatten())
    close(whole.loss, expected)
    close(chosen.loss, expected)
    close(chosen.logits, whole.logits[labels != -100])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_masked_words_have_global_attention_by_default():
    model = tiny(CdlmForMaskedLM, attention_window=4)
    ids, mask, _ = masked_batch()

    by_default = model(ids, mask).logits

    assert torch.equal(by_default, model(ids, mask, (ids == 4).long()).logits)
    assert not torch.allclose(by_default, model(ids, mask, torch.zeros_like(ids)).logits, atol=0.1)
    model.config.mask_token_id = None
    assert torch.equal(model(ids, mask).logits, model(ids, mask, torch.zeros_like(ids)).logits)


@pytest.mark.parametrize(
    ("pattern", "places"),
    [("masked", [[2, 30], [], [5], [8]]), ("prefix", [[0, 1], [], [0], [0]]), ("none", [[]] * 4)],
)
@torch.no_grad()
def test_the_pattern_of_the_training_is_the_default_of_a_saved_model(tmp_path, pattern, places):
    tiny(CdlmForMaskedLM, attention_window=4, global_attention=pattern).save_pretrained(tmp_path)
    model = CdlmForMaskedLM.from_pretrained(tmp_path)
    ids, mask, _ = masked_batch()

    wide = globals_of(places, ids.shape[1])
    assert torch.equal(model(ids, mask).logits, model(ids, mask, wide).logits)
    # The same with padding on the left.
    left_ids, left_mask = (torch.nn.functional.pad(rows, (3, 0)) for rows in (ids, mask))
    left = model(left_ids, left_mask).logits[:, 3:]
    real = mask.bool()
    close(left[real], model(ids, mask).logits[real], atol=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_batch_without_a_masked_word_has_a_loss_of_zero(sparse):
    ids, mask = batch()
    model = tiny(CdlmForMaskedLM, sparse_prediction=sparse)

    loss = model(ids, mask, labels=torch.full_like(ids, -100)).loss

    assert loss.item() == 0.0
    loss.backward()
    assert not model.longformer.embeddings.word_embeddings.weight.grad.any()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_a_two_in_the_attention_mask_is_global_attention(attention):
    """Longformer's older way of marking, beside the other mask and a head's own default."""
    ids, mask = batch()
    wide = globals_of([[0, 20], [], [3], [8]], ids.shape[1])
    model = tiny(attention=attention, attention_window=4)
    expected = model(ids, mask, wide).last_hidden_state

    assert not torch.allclose(model(ids, mask).last_hidden_state, expected, atol=0.1)
    close(model(ids, mask + wide).last_hidden_state, expected)
    first = globals_of([[0], [], [3], []], ids.shape[1])
    close(model(ids, mask + wide, first).last_hidden_state, expected)
    matching = tiny(CdlmForDocumentMatching, attention, attention_window=4)
    with_cls = wide | globals_of([[0]] * 4, ids.shape[1])
    close(matching(ids, mask + wide).logits, matching(ids, mask, with_cls).logits)


def test_the_defaults_of_the_configuration_are_those_of_the_paper():
    config = CdlmConfig()

    assert config.pair_scorer_hidden_size == 1024
    assert config.attention_window == [512] * 12
    assert (config.max_sequence_length, config.global_attention) == (4096, "masked")
    assert (config.sparse_prediction, config.coreference_threshold) == (False, 0.5)
    assert config.classifier_dropout == config.hidden_dropout_prob == 0.1


# Document matching.


@torch.no_grad()
def test_matching_gives_global_attention_to_cls():
    model = tiny(CdlmForDocumentMatching, attention_window=4, num_labels=2)
    ids, mask = batch()

    by_default = model(ids, mask).logits

    first = globals_of([[0]] * 4, ids.shape[1])
    assert torch.equal(by_default, model(ids, mask, first).logits)
    assert not torch.allclose(
        by_default, model(ids, mask, torch.zeros_like(first)).logits, atol=1e-2
    )
    labels = torch.tensor([1, 0, 0, 1])
    loss = model(ids, mask, labels=labels).loss
    close(loss, torch.nn.functional.cross_entropy(by_default, labels))


# Coreference.


@torch.no_grad()
@pytest.mark.parametrize(
    ("row", "pair", "one", "other"),
    [
        (0, 0, [3, 4], [20]),
        (0, 1, [30, 31, 32, 33], [3, 4]),
        (1, 0, [0], [0]),
        (2, 0, [18, 19], [6, 7, 8]),
    ],
)
def test_the_score_of_a_pair_is_that_of_a_network_of_torch(row, pair, one, other):
    """Appendix C.1: s is [CLS], m_i and m_j are the sums of the mentions' tokens."""
    model = tiny(CdlmForCrossDocumentCoreference)
    ids, mask = mentions_batch()
    first = model.scorer.dense
    last = model.scorer.projection
    network = torch.nn.Sequential(
        torch.nn.Linear(4 * model.config.hidden_size, model.config.pair_scorer_hidden_size),
        torch.nn.Tanh(),
        torch.nn.Linear(model.config.pair_scorer_hidden_size, 1),
    )
    weights = {"0.weight": first.weight, "0.bias": first.bias}
    network.load_state_dict(weights | {"2.weight": last.weight, "2.bias": last.bias})

    output = model(ids, SPANS, PAIRS, mask, output_hidden_states=True)

    states = output.hidden_states[-1][row]
    m_i = states[one].sum(dim=0)
    m_j = states[other].sum(dim=0)
    score = network(torch.cat([states[0], m_i, m_j, m_i * m_j]))
    close(output.logits[row, pair], score[0], atol=1e-4)


@torch.no_grad()
def test_pairs_that_are_not_there_have_no_score_and_two_mentions_need_none():
    model = tiny(CdlmForCrossDocumentCoreference)
    ids, mask = mentions_batch()

    output = model(ids, SPANS, PAIRS, mask)

    assert output.pair_mask.tolist() == [[True, True], [True, False], [True, False]]
    assert output.logits[1:, 1].tolist() == [0.0, 0.0]
    alone = model(ids[2:, :20], SPANS[2:, :2])
    close(alone.logits[0], model(ids[2:, :20], SPANS[2:, :2], torch.tensor([[[0, 1]]])).logits[0])


@torch.no_grad()
def test_mentions_and_their_markers_have_global_attention():
    model = tiny(CdlmForCrossDocumentCoreference, attention_window=4)
    ids, mask = mentions_batch()
    wide = globals_of(
        [[0, *range(2, 6), 19, 20, 21, *range(29, 35)], [0], [0, *range(5, 10), 17, 18, 19]], 37
    )

    by_default = model(ids, SPANS, PAIRS, mask).logits

    close(by_default, model(ids, SPANS, PAIRS, mask, wide).logits)
    for place in (0, 2, 5, 20, 34):
        fewer = wide.clone()
        fewer[0, place] = 0
        assert not torch.allclose(
            by_default[0], model(ids, SPANS, PAIRS, mask, fewer).logits[0], atol=1e-4
        )


def test_the_loss_of_pairs_leaves_out_what_is_unknown():
    model = tiny(CdlmForCrossDocumentCoreference)
    ids, mask = mentions_batch()
    output = model(ids, SPANS, PAIRS, mask, labels=torch.tensor([[1, -100], [0, -100], [1, -100]]))
    first, second, third = output.logits[:, 0]

    losses = binary(first, 1) + binary(second, 0) + binary(third, 1)

    close(output.loss, losses / 3, atol=1e-4)
    nothing = model(ids, SPANS, PAIRS, mask, labels=torch.full((3, 2), -100))
    assert float(nothing.loss.detach()) == 0.0


# Questions over several paragraphs.


def any_of(scores, *positions):
    """Minus the log of the share that these positions have of the softmax."""
    return -scores.softmax(-1)[list(positions)].sum().log()


def binary(score, label):
    share = torch.sigmoid(score)
    return -torch.log(torch.stack([1 - share, share])[label])


def test_scores_of_a_question_worked_by_hand():
    """They are read where the layout says; what is not there has none, what cannot be an answer no
    probability."""
    model = tiny(CdlmForMultiHopQuestionAnswering, num_labels=2)
    output = model(**question_batch(), output_hidden_states=True)
    assert output.loss is None
    states = output.hidden_states[-1]

    def head(layers, state):
        return layers[2](torch.nn.functional.gelu(layers[0](state)))

    close(output.type_logits, head(model.qa_type, states[:, 0]))
    close(output.sentence_logits[0], head(model.qa_sentence, states[0, [12, 19, 30]])[:, 0])
    close(output.paragraph_logits[0], head(model.qa_paragraph, states[0, [9, 25]])[:, 0])
    assert output.sentence_logits[1, 1:].tolist() == [0.0, 0.0]
    assert output.paragraph_logits[1, 1:].tolist() == [0.0]
    possible = question_batch()["context_mask"].bool()
    for logits, column in ((output.start_logits, 0), (output.end_logits, 1)):
        expected = states @ model.qa_outputs.weight[column] + model.qa_outputs.bias[column]
        close(logits[possible], expected[possible])
        assert not logits.softmax(-1)[~possible].any()


def test_losses_of_a_question_worked_by_hand():
    model = tiny(CdlmForMultiHopQuestionAnswering, num_labels=2)
    output = model(**question_batch(), **ANSWERS)
    start = output.start_logits
    end = output.end_logits
    kind = output.type_logits
    sentence = output.sentence_logits
    paragraph = output.paragraph_logits

    parts = {
        "start_positions": any_of(start[0], 10, 14, 33) + any_of(start[1], 8),
        "end_positions": any_of(end[0], 11, 14, 35) + any_of(end[1], 8),
        "type_labels": any_of(kind[0], 0) + any_of(kind[1], 2),
        "sentence_labels": (binary(sentence[0, 0], 1) + binary(sentence[0, 1], 0)) / 2
        + binary(sentence[1, 0], 1),
        "paragraph_labels": (binary(paragraph[0, 0], 1) + binary(paragraph[0, 1], 0)) / 2
        + binary(paragraph[1, 0], 1),
    }

    for name, part in parts.items():
        close(model(**question_batch(), **{name: ANSWERS[name]}).loss, part / 2, atol=1e-4)
    close(output.loss, sum(parts.values()) / 2, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "labels", "unknown"),
    [
        ("start_positions", [[10, 14, 33], [-1, -1, -1]], -1),
        ("type_labels", [0, -100], -100),
        ("sentence_labels", [[1, 0, -100], [-100, -100, -100]], -100),
        ("paragraph_labels", [[1, 0], [-100, -100]], -100),
    ],
)
def test_what_is_unknown_of_a_question_is_left_out(name, labels, unknown):
    model = tiny(CdlmForMultiHopQuestionAnswering)
    labels = torch.tensor(labels)

    together = model(**question_batch(), **{name: labels}).loss

    one = {key: values[:1] for key, values in question_batch().items()}
    close(together, model(**one, **{name: labels[:1]}).loss)
    nothing = model(**question_batch(), **{name: torch.full_like(labels, unknown)}).loss
    assert float(nothing.detach()) == 0.0
    nothing.backward()
    assert torch.isfinite(model.longformer.embeddings.word_embeddings.weight.grad).all()


# All classes.


@torch.no_grad()
@pytest.mark.parametrize(
    ("cls", "inputs"),
    [
        (CdlmForDocumentMatching, {}),
        (CdlmForCrossDocumentCoreference, {"mention_spans": SPANS}),
        (CdlmForMultiHopQuestionAnswering, question_batch()),
    ],
)
def test_padding_on_the_left_changes_nothing(cls, inputs):
    model = tiny(cls)
    ids, mask = mentions_batch()
    inputs = {"input_ids": ids, "attention_mask": mask, **inputs}
    moved = {}
    for name, values in inputs.items():
        if name.endswith(("_index", "_spans")):
            moved[name] = torch.where(values >= 0, values + 3, values)
        else:
            moved[name] = torch.nn.functional.pad(values, (3, 0))

    scores = model(**inputs).to_tuple()

    for one, other in zip(scores, model(**moved).to_tuple(), strict=True):
        close(one, other[..., -one.shape[-1] :])


@torch.no_grad()
def test_new_words_keep_the_head_tied():
    model = tiny(CdlmForMaskedLM)
    ids, mask, _ = masked_batch()
    before = model(ids, mask).logits

    model.resize_token_embeddings(107, mean_resizing=False)

    close(model(ids, mask).logits[..., :100], before)
    assert model.lm_head.decoder.weight is model.longformer.embeddings.word_embeddings.weight
    assert model.lm_head.decoder.bias is model.lm_head.bias
    assert model.config.vocab_size == 107


@pytest.mark.parametrize(
    ("read", "word"),
    [
        (lambda ids, mask: CdlmConfig(**{**SIZE, "attention_window": [4, 4, 7]}), "attention_wind"),
        (lambda ids, mask: tiny()(torch.full((1, 65), 7)), "65 tokens"),
        (lambda ids, mask: tiny()(ids, (1 - mask) * -10_000), "it has -10000"),
        (lambda ids, mask: tiny()(ids, mask * 3), "it has 3"),
    ],
)
def test_what_the_models_refuse(read, word):
    ids, mask, _ = masked_batch()
    with pytest.raises(ValueError, match=word):
        read(ids, mask)


def test_a_mention_behind_the_end_is_refused():
    ids, mask = mentions_batch()
    spans = torch.tensor([[[3, 5], [5, 6]], [[0, 1], [0, 2]], [[0, 1], [1, 2]]])

    with pytest.raises(ValueError, match="Mention 1 of row 1"):
        tiny(CdlmForCrossDocumentCoreference)(ids, spans, attention_mask=mask)
