"""What the cards of pretrained models say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from huggingface_hub import ModelCard
from transformers import BertConfig

from nextlevelbert import CdlmConfig, HateConfig
from nextlevelbert.pretraining.arguments import PretrainingArguments
from nextlevelbert.pretraining.card import write_cdlm_card, write_vector_card

from ..conftest import toy_config

CORPUS = {"documents": 1200, "tokens": 3_400_000, "chunks": 14_000, "encoder": {"dtype": "bfloat16"},
          "chunking": {"splitter": "pysbd.segmenter.Segmenter.segment"}}  # fmt: skip
FIRST = {"eval_loss": 2.0, "eval_masked_cosine": 0.1, "eval_masked_accuracy": 0.2, "eval_chance_accuracy": 0.05}
LAST = {"eval_loss": 1.0, "eval_masked_cosine": 0.3, "eval_masked_accuracy": 0.4, "eval_chance_accuracy": 0.05}
LOG = [{"step": 0, **FIRST}, {"step": 1, "loss": 1.75}, {"step": 9, "loss": 0.5}, {"step": 9, **LAST}]


def trained(folder, config, log, **options):
    """As much of a trainer as a card reads."""
    args = PretrainingArguments(output_dir=str(folder / "my-model"), learning_rate=2e-4, **options)
    (folder / "my-model").mkdir()
    state = SimpleNamespace(log_history=log, global_step=9)
    return SimpleNamespace(args=args, state=state, config=config)


def card_of(folder):
    return ModelCard.load(folder / "my-model" / "README.md")


def of_the_hub(**values):
    return toy_config(chunk_encoder_name="someone/encoder", chunk_encoder_fingerprint="0123456789abcdef", **values)


def test_a_nextlevelbert_with_its_scores_and_the_baseline(tmp_path):
    trainer = trained(tmp_path, of_the_hub(pooling="residual", whiten_chunks=True), LOG)
    baseline = {"masked_cosine": 0.6, "masked_accuracy": 0.25, "chance_accuracy": 0.05}
    write_vector_card(trainer, CORPUS, {"objective": "l2 over 15% of the vectors"}, baseline)
    card = card_of(tmp_path)
    assert card.text.strip().startswith("# my-model\n\nA [NextLevelBERT](https://arxiv.org/abs/2402.17682)")
    for line in (
        'model = SentenceTransformer("my-model")',
        "| chunk encoder (frozen) | `someone/encoder`, weights `0123456789ab…` |",
        "| sentences | found by `pysbd.segmenter.Segmenter.segment` |",
        "| chunk vectors | centred and whitened within documents |",
        "| document vector | trained projections of the mean of the chunk vectors and of the contextual ones, added |",
        "| training corpus | 1,200 documents, 3,400,000 tokens, 14,000 chunks (encoded in bfloat16) |",
        "| objective | `l2 over 15% of the vectors` |",
        "| learning_rate | `0.0002` |",
        "| optimizer_steps | `9` |",
        "| lr_scheduler_type | `cosine` |",
        "| precision | `fp32` |",
        "Training loss went from 1.75000 to 0.50000 (first and last logged).",
        "![Loss and held-out scores over training](loss_curve.png)",
        "| | first evaluation | last evaluation | mean of the context |",
        "| loss | 2.0000 | 1.0000 |  |",
        "| masked_accuracy | 0.2000 | 0.4000 | 0.2500 |",
    ):
        assert line in card.text.splitlines(), line
    assert (tmp_path / "my-model" / "loss_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (card.data.base_model, card.data.pipeline_tag) == ("someone/encoder", "sentence-similarity")
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == {
        "masked_cosine": 0.3,
        "masked_accuracy": 0.4,
    }
    assert {result.task_type for result in card.data.eval_results} == {"fill-mask"}
    assert str(tmp_path) not in card.content


def test_a_contrastive_one_tells_of_pairs_and_has_the_name_of_its_repository(tmp_path):
    scores = {"eval_loss": 1.0, "eval_pair_accuracy": 0.75, "eval_chance_accuracy": 0.125}
    trainer = trained(tmp_path, of_the_hub(), [{"step": 9, **scores}], hub_model_id="me/model")
    write_vector_card(trainer, CORPUS, {"objective": "contrastive"})
    card = card_of(tmp_path)
    assert "# me/model" in card.text
    assert "| pair_accuracy | 0.7500 | 0.7500 |" in card.text
    assert "`pair_accuracy`: how often a segment finds" in card.text
    assert "| first evaluation | last evaluation |\n" in card.text  # no baseline
    assert "Training loss" not in card.text  # none was logged
    [result] = card.data.eval_results
    assert (result.task_type, result.metric_value) == ("sentence-similarity", 0.75)


def test_a_hate_without_an_evaluation(tmp_path):
    size = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = HateConfig(
        encoder_config=BertConfig(**size, hidden_size=16).to_dict(),
        chunk_encoder_config=BertConfig(**size, hidden_size=32).to_dict(),
        chunk_encoder_name="local-encoder", chunk_encoder_fingerprint="0" * 64,
    )  # fmt: skip
    write_vector_card(trained(tmp_path, config, []), CORPUS, {"objective": "p_norm"})
    card = card_of(tmp_path)
    assert "A HATE (Hierarchical" in card.text
    assert "| bottleneck | 32 → " in card.text
    assert "Nothing: the run had no evaluation." in card.text
    assert card.data.base_model is None  # a folder, not a name on the Hub
    assert card.data.eval_results is None


@pytest.mark.parametrize("on_hub", [True, False])
def test_a_cdlm_with_its_perplexity(tmp_path, on_hub):
    log = [
        {"step": 0, "eval_loss": 3.0, "eval_perplexity": 20.0855},
        {"step": 5, "loss": 2.5},
        {"step": 9, "eval_loss": 2.0, "eval_perplexity": 7.3891},
    ]
    config = CdlmConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, attention_window=[8, 8])
    sets = {"documents": "news.jsonl: 6 sets", "global attention": "masked"}
    write_cdlm_card(trained(tmp_path, config, log), "some/roberta", on_hub, sets)
    card = card_of(tmp_path)
    for line in (
        "| started from | `some/roberta` |",
        "| layers, hidden size | 2, 32 |",
        "| attention window | 8 tokens |",
        "| documents | `news.jsonl: 6 sets` |",
        "| global attention | `masked` |",
        "| | loss | cross-document perplexity |",
        "| first evaluation | 3.0000 | 20.0855 |",
        "| last evaluation | 2.0000 | 7.3891 |",
        'model = AutoModelForMaskedLM.from_pretrained("my-model")',
    ):
        assert line in card.text.splitlines(), line
    assert card.data.base_model == ("some/roberta" if on_hub else None)
    assert [(result.metric_type, result.metric_value) for result in card.data.eval_results] == [("perplexity", 7.3891)]
    assert (tmp_path / "my-model" / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
