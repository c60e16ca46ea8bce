"""NaN and infinity, wherever they come from, are an error that numbers the documents and names the weight."""

from __future__ import annotations

import math

import pytest
import torch

from nextlevelbert import (
    CdlmForCrossDocumentCoreference,
    CdlmForMultiHopQuestionAnswering,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForSequenceClassification,
)
from nextlevelbert.models.input_checks import check_weights

from ..conftest import toy_config
from ..golden.inputs import CLASSES, FOLDER
from ..golden.outputs import TEXTS, outputs_of
from ..vector_toys import packed_batch


@pytest.mark.parametrize("name", CLASSES)
def test_a_file_with_nan_in_any_weight_is_not_opened(name, tmp_path):
    """A pass would not show all of them: torch's attention takes a score of NaN for a masked position."""
    model = CLASSES[name].from_pretrained(FOLDER / name)
    weights = model.state_dict()
    for count, values in enumerate(weights.values()):
        if values.is_floating_point():
            before = values.clone()
            values.view(-1)[-1] = (math.nan, math.inf, -math.inf)[count % 3]
            names = "|".join(other for other, tied in weights.items() if tied.data_ptr() == values.data_ptr())
            with pytest.raises(ValueError, match=f"The weight ({names}) of 'here' holds NaN or infinity"):
                check_weights(model, "here")
            values.copy_(before)
    check_weights(model, "here")
    next(model.parameters()).data.fill_(math.nan)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds NaN or infinity: the file is damaged"):
        CLASSES[name].from_pretrained(tmp_path)


@pytest.mark.parametrize("name", CLASSES)
def test_weights_that_become_nan_give_no_result(name):
    model = CLASSES[name].from_pretrained(FOLDER / name)
    base = f"{model.base_model_prefix}." if model.base_model is not model else "encoder."
    weights = dict(model.state_dict())
    heads = [weight for weight in weights if not weight.startswith(base)] if model.base_model is not model else []
    if name == "nextlevelbert-contrastive":
        heads = ["logit_scale"]  # without masked vectors, the other head has no part in it
    for weight in (*heads, next(weight for weight in weights if "encoder.layer.0.output.dense.weight" in weight)):
        before = weights[weight].clone()
        weights[weight].fill_(math.nan)
        with pytest.raises(ValueError, match=r"The result for .* \[0.*\] holds NaN or infinity, because the weight "):
            outputs_of(name, model)
        weights[weight].copy_(before)


def test_encode_numbers_the_documents(toy):
    toy.chunk_encoder.model.embeddings.word_embeddings.weight.data[toy.tokenizer.convert_tokens_to_ids("whale")] = (
        math.nan
    )
    texts = ["the sea", "a whale", "bread", "the whale again"]
    message = r"document\(s\) \[1, 3\] holds NaN or infinity, because the weight chunk_encoder.*word_embeddings.* does"
    with pytest.raises(ValueError, match=message):
        toy.encode(texts)
    with pytest.raises(ValueError, match=message):
        toy(**toy.tokenizer(texts, padding=True, return_tensors="pt"))
    assert torch.isfinite(toy.encode(texts[0]).document).all()


@pytest.mark.parametrize("value", [1e16, 1e20, 1e30, 3e38, math.inf, math.nan])
def test_vectors_too_large_to_compute_with(toy, value):
    """A layer normalisation makes zeros of vectors of 1e19, and NaN of vectors of 1e30."""
    vectors = torch.randn(3, 4, 32)
    vectors[1, 2] = value
    wanted = r"document\(s\) \[1\] contain NaN or infinity, or vectors longer than 1e\+15; encode them again"
    with pytest.raises(ValueError, match=wanted):
        toy(inputs_embeds=vectors)
    assert torch.isfinite(toy(inputs_embeds=vectors.clamp(-1e12, 1e12).nan_to_num()).pooler_output).all()
    model = NextLevelBertForMaskedVectorModeling(toy_config())
    batch = packed_batch()
    batch["inputs_embeds"][1, 3] = value
    with pytest.raises(ValueError, match=r"inputs_embeds of sequence\(s\) \[1\] contain NaN"):
        model(**batch)
    batch = packed_batch()
    batch["labels"][1, 2] = value
    with pytest.raises(ValueError, match=r"labels of sequence\(s\) \[1\] contain NaN"):
        model(**batch)
    questions = NextLevelBertForSequenceClassification(toy_config(text_pair=True)).eval()
    with pytest.raises(ValueError, match=r"pair_embeds of question\(s\) \[1\] contain NaN"):
        questions(inputs_embeds=vectors.clone().fill_(0.1), pair_embeds=vectors[:, 2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_vectors_of_other_dtypes(toy, dtype):
    vectors = torch.randn(2, 3, 32, dtype=dtype)
    expected = toy(inputs_embeds=vectors.float()).pooler_output
    torch.testing.assert_close(toy(inputs_embeds=vectors).pooler_output, expected)
    vectors[1, 2] = math.inf
    with pytest.raises(ValueError, match=r"document\(s\) \[1\] contain NaN or infinity"):
        toy(inputs_embeds=vectors)


def test_a_cause_that_is_no_weight(toy):
    with pytest.raises(
        ValueError, match=r"document\(s\) \[5\] holds NaN.*every weight is finite: .*float32 overflowed"
    ):
        toy.contextualize([torch.full((2, 32), 1e30)], first=5)


def zero_with_gradient(model, loss):
    assert loss.item() == 0
    loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert gradients
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("name", [name for name in CLASSES if name.endswith(("classification", "matching", "choice"))])
def test_labels_of_which_none_counts(name):
    model = CLASSES[name].from_pretrained(FOLDER / name, num_labels=2, ignore_mismatched_sizes=True)
    if name == "cdlm-matching":
        inputs = {"input_ids": torch.randint(10, 90, (3, 12))}
    else:
        inputs = dict(model.tokenizer(TEXTS, padding=True, return_tensors="pt"))
        inputs.pop("token_type_ids", None)
    if name.endswith("choice"):
        inputs["pair_embeds"] = torch.randn(3, 2, model.config.chunk_hidden_size)
    elif getattr(model.config, "text_pair", False):
        inputs["pair_embeds"] = torch.randn(3, model.config.chunk_hidden_size)
    zero_with_gradient(model, model(**inputs, labels=torch.full((3,), -100)).loss)
    one = model(**inputs, labels=torch.tensor([-100, 1, -100]))
    torch.testing.assert_close(one.loss, torch.nn.functional.cross_entropy(one.logits[1:2], torch.tensor([1])))


@pytest.mark.parametrize(
    ("name", "loss"),
    [*(("nextlevelbert-masked", loss) for loss in ("smooth_l1", "l1", "l2", "cosine", "cross_entropy")),
     *(("hate-masked", loss) for loss in ("p_norm", "cross_entropy"))],
)  # fmt: skip
def test_no_masked_vector(name, loss):
    model = CLASSES[name].from_pretrained(FOLDER / name)
    model.config.loss = loss
    batch = packed_batch(model.config.chunk_hidden_size, length=7)
    batch["special_ids"][batch["special_ids"] > 1] = -1
    zero_with_gradient(model, model(**{**batch, "mask_positions": torch.zeros(2, 7)}).loss)


def test_questions_and_pairs_without_labels():
    model = CdlmForMultiHopQuestionAnswering.from_pretrained(FOLDER / "cdlm-questions")
    ids, nothing = torch.randint(10, 90, (2, 12)), torch.full((2, 2), -100)
    inputs = {
        "input_ids": ids,
        "global_attention_mask": torch.zeros_like(ids),
        "sentence_index": torch.tensor([[1, 3], [2, -1]]),
        "paragraph_index": torch.tensor([[1], [0]]),
        "start_positions": torch.full((2, 1), -1),
        "end_positions": torch.full((2, 1), -1),
        "type_labels": torch.full((2,), -100),
        "sentence_labels": nothing,
        "paragraph_labels": nothing[:, :1],
    }
    zero_with_gradient(model, model(**inputs).loss)
    pairs = CdlmForCrossDocumentCoreference.from_pretrained(FOLDER / "cdlm-coreference")
    spans = torch.tensor([[[3, 5], [7, 8]], [[0, 1], [6, 9]]])
    zero_with_gradient(pairs, pairs(input_ids=ids, mention_spans=spans, labels=nothing[:, :1]).loss)


def test_losses_that_ask_for_labels():
    masked = CLASSES["cdlm-masked"].from_pretrained(FOLDER / "cdlm-masked")
    ids = torch.randint(10, 90, (2, 12))
    with pytest.raises(ValueError, match="No position of the batch is masked"):
        masked(input_ids=ids, labels=torch.full_like(ids, -100))
    summaries = CLASSES["bert-al-summarization"].from_pretrained(FOLDER / "bert-al-summarization")
    batch = summaries.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with pytest.raises(ValueError, match="all of them are -100"):
        summaries(**batch, labels=torch.full((3, 1), -100))
