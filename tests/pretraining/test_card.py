"""Scores in words and of the saved weights; whole cards are read after the runs of
test_pretrain.py."""

from types import SimpleNamespace

from nextlevelbert.pretraining.card import evaluations_of_weights, what_was_learned

LOG = [{"step": step, "eval_loss": 1 / step, "eval_count": 8} for step in (1, 2, 3)]
SCORES = {"eval_masked_accuracy": 0.25, "eval_chance_accuracy": 0.125, "eval_count": 1_600}


def test_scores_are_told_as_counts():
    expected = "Held-out documents: 400 of 1,600 masked vectors found (chance: 200)"

    assert what_was_learned(SCORES) == f"{expected}."
    with_r2 = what_was_learned({**SCORES, "eval_r2": 0.5})
    assert with_r2 == f"{expected}, R² against the mean 0.500."


def test_the_best_evaluation_is_the_last_one_of_its_weights():
    state = SimpleNamespace(
        global_step=3,
        best_global_step=2,
        best_model_checkpoint="checkpoint-2",
        log_history=LOG,
    )
    args = SimpleNamespace(load_best_model_at_end=True)
    trainer = SimpleNamespace(state=state, args=args)

    of_best = evaluations_of_weights(trainer)
    args.load_best_model_at_end = False
    of_last = evaluations_of_weights(trainer)

    assert of_best == LOG[:2]
    assert of_last == LOG
