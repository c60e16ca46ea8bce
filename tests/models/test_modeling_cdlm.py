"""What CDLM's models compute: masked words, matching, pairs of mentions and answers, worked by
hand."""

from __future__ import annotations

import math

import pytest
import torch

from nextlevelbert import (
    CdlmConfig,
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
)

from ..cdlm_toys import (
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
from ..vector_toys import close

# Masked words.


def test_the_loss_over_words_is_that_of_torch_and_sparse_prediction_has_it():
    ids, mask, labels = masked_batch()
    outputs, gradients = [], []
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


def test_a_batch_without_a_masked_word_has_a_loss_of_zero():
    ids, mask = batch()
    for sparse in (False, True):
        model = tiny(CdlmForMaskedLM, sparse_prediction=sparse)
        loss = model(ids, mask, labels=torch.full_like(ids, -100)).loss
        assert loss.item() == 0.0
        loss.backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        assert gradients
        assert not any(gradient.any() for gradient in gradients)


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
    assert config.windows() == [512] * 12
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
def test_the_score_of_a_pair_worked_by_hand():
    model = tiny(CdlmForCrossDocumentCoreference)
    ids, mask = mentions_batch()
    output = model(ids, SPANS, PAIRS, mask, output_hidden_states=True)
    states = output.hidden_states[-1]
    first, last = model.scorer.dense, model.scorer.projection
    for row, pair, (one, other) in (
        (0, 0, ([3, 4], [20])),
        (0, 1, ([30, 31, 32, 33], [3, 4])),
        (1, 0, ([0], [0])),
        (2, 0, ([18, 19], [6, 7, 8])),
    ):
        m_i = sum(states[row, token] for token in one)
        m_j = sum(states[row, token] for token in other)
        features = torch.cat([states[row, 0], m_i, m_j, m_i * m_j])
        score = last.weight[0] @ torch.tanh(first.weight @ features + first.bias) + last.bias[0]
        close(output.logits[row, pair], score, atol=1e-4)
    assert output.pair_mask.tolist() == [[True, True], [True, False], [True, False]]
    assert output.logits[1:, 1].tolist() == [0.0, 0.0]
    alone = model(ids[2:, :20], SPANS[2:, :2])  # two mentions need no pairs
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
    scores = [1 / (1 + math.exp(-score)) for score in output.logits[:, 0].tolist()]
    expected = -(math.log(scores[0]) + math.log(1 - scores[1]) + math.log(scores[2])) / 3
    assert float(output.loss.detach()) == pytest.approx(expected, abs=1e-4)
    assert (
        float(model(ids, SPANS, PAIRS, mask, labels=torch.full((3, 2), -100)).loss.detach()) == 0.0
    )


# Questions over several paragraphs.


def any_of(scores, *positions):
    """Minus the log of the share that these positions have of the softmax."""
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    return -math.log(sum(powers[position] for position in positions) / sum(powers))


def binary(score, label):
    return math.log(1 + math.exp(-score if label else score))


def test_scores_and_losses_of_a_question_worked_by_hand():
    model = tiny(CdlmForMultiHopQuestionAnswering, num_labels=2)
    output = model(**question_batch(), **ANSWERS, output_hidden_states=True)
    states = output.hidden_states[-1]

    def head(layers, state):
        return layers[2](torch.nn.functional.gelu(layers[0](state)))

    # Scores are read where the layout says; what is not there has none, what cannot be an answer no
    # probability.
    close(output.type_logits, head(model.qa_type, states[:, 0]))
    expected = head(model.qa_sentence, states[0, [12, 19, 30]])[:, 0]
    close(output.sentence_logits[0], expected)
    expected = head(model.qa_paragraph, states[0, [9, 25]])[:, 0]
    close(output.paragraph_logits[0], expected)
    assert output.sentence_logits[1, 1:].tolist() == [0.0, 0.0]
    assert output.paragraph_logits[1, 1:].tolist() == [0.0]
    possible = question_batch()["context_mask"].bool()
    for logits, column in ((output.start_logits, 0), (output.end_logits, 1)):
        expected = states @ model.qa_outputs.weight[column] + model.qa_outputs.bias[column]
        close(logits[possible], expected[possible])
        assert not logits.softmax(-1)[~possible].any()
    start, end, kind = (
        logits.tolist() for logits in (output.start_logits, output.end_logits, output.type_logits)
    )
    sentence, paragraph = output.sentence_logits.tolist(), output.paragraph_logits.tolist()
    parts = {
        "start_positions": (any_of(start[0], 10, 14, 33) + any_of(start[1], 8)) / 2,
        "end_positions": (any_of(end[0], 11, 14, 35) + any_of(end[1], 8)) / 2,
        "type_labels": (any_of(kind[0], 0) + any_of(kind[1], 2)) / 2,
        "sentence_labels": (binary(sentence[0][0], 1) + binary(sentence[0][1], 0)) / 4
        + binary(sentence[1][0], 1) / 2,
        "paragraph_labels": (binary(paragraph[0][0], 1) + binary(paragraph[0][1], 0)) / 4
        + binary(paragraph[1][0], 1) / 2,
    }
    for name, part in parts.items():
        alone = model(**question_batch(), **{name: ANSWERS[name]}).loss
        assert float(alone.detach()) == pytest.approx(part, abs=1e-4), name
    assert float(output.loss.detach()) == pytest.approx(sum(parts.values()), abs=1e-4)
    assert model(**question_batch()).loss is None


def test_what_is_unknown_of_a_question_is_left_out():
    model = tiny(CdlmForMultiHopQuestionAnswering)
    one = {name: values[:1] for name, values in question_batch().items()}
    for name, nothing in (
        ("start_positions", torch.tensor([[10, 14, 33], [-1, -1, -1]])),
        ("type_labels", torch.tensor([0, -100])),
        ("sentence_labels", torch.tensor([[1, 0, -100], [-100, -100, -100]])),
        ("paragraph_labels", torch.tensor([[1, 0], [-100, -100]])),
    ):
        together = model(**question_batch(), **{name: nothing}).loss
        alone = model(**one, **{name: nothing[:1]}).loss
        close(together, alone)
        none = model(
            **question_batch(), **{name: torch.full_like(nothing, -1 if "pos" in name else -100)}
        ).loss
        assert float(none.detach()) == 0.0
        none.backward()
        assert all(
            torch.isfinite(weight.grad).all()
            for weight in model.parameters()
            if weight.grad is not None
        )


# All classes.


@torch.no_grad()
@pytest.mark.parametrize(
    ("cls", "inputs"),
    [
        (CdlmForDocumentMatching, dict(zip(("input_ids", "attention_mask"), batch(), strict=True))),
        (
            CdlmForCrossDocumentCoreference,
            {
                **dict(zip(("input_ids", "attention_mask"), mentions_batch(), strict=True)),
                "mention_spans": SPANS,
            },
        ),
        (CdlmForMultiHopQuestionAnswering, question_batch()),
    ],
)
def test_padding_on_the_left_changes_nothing(cls, inputs):
    model, moved = tiny(cls), {}
    for name, values in inputs.items():
        places = name.endswith(("_index", "_spans"))
        moved[name] = (
            torch.where(values >= 0, values + 3, values)
            if places
            else torch.nn.functional.pad(values, (3, 0))
        )
    scores, again = (model(**rows).to_tuple() for rows in (inputs, moved))
    if cls is CdlmForMultiHopQuestionAnswering:
        again = (again[0][:, 3:], again[1][:, 3:], *again[2:])
    for one, other in zip(scores, again, strict=True):
        close(one, other)


def test_new_words_keep_the_head_tied():
    model = tiny(CdlmForMaskedLM)
    ids, mask, _ = masked_batch()
    with torch.no_grad():
        before = model(ids, mask).logits
        model.resize_token_embeddings(107, mean_resizing=False)
        close(model(ids, mask).logits[..., :100], before)
    assert model.lm_head.decoder.weight is model.longformer.embeddings.word_embeddings.weight
    assert model.lm_head.decoder.bias is model.lm_head.bias
    assert model.config.vocab_size == 107


def test_what_the_models_refuse():
    ids, mask, _ = masked_batch()
    spans = torch.tensor([[[3, 5], [5, 6]], [[0, 1], [0, 2]], [[0, 1], [1, 2]]])
    for word, call in (
        ("attention_window", lambda: CdlmConfig(**{**SIZE, "attention_window": [4, 4, 7]})),
        ("65 tokens", lambda: tiny()(torch.full((1, 65), 7))),
        ("it has -10000", lambda: tiny()(ids, (1 - mask) * -10_000)),
        ("it has 3", lambda: tiny()(ids, mask * 3)),
        (
            "Mention 1 of row 1",
            lambda: tiny(CdlmForCrossDocumentCoreference)(
                *mentions_batch()[:1], spans, None, mask[:3]
            ),
        ),
    ):
        with pytest.raises(ValueError, match=word):
            call()
