"""`--recipe paper` against the papers' own words."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from nextlevelbert import tasks
from nextlevelbert.pretraining import run
from nextlevelbert.training.recipes import PAPERS, against_paper, with_recipe

# Copied from the papers: section, and what stands there. A batch is that of an optimiser step.
READ = {
    # arXiv 2402.17682, section 3.1 "Setup", sections 2.2 and 3.2
    "nextlevelbert": "epochs 20; cosine; 1e-4; warm-up 0.05; betas 0.9 0.999; decay 0.01; batch 512",
    # arXiv 2101.00406, section 2.3 "Training and hyperparameters" and appendix B; RoBERTa's betas, epsilon and decay
    "cdlm": "steps 25000; polynomial; 3e-5; warm-up 500; betas 0.9 0.98; decay 0.01; batch 64",
    # arXiv 2310.20558, section 4.3
    "classification chunkbert": "epochs 20; constant; 3e-5; warm-up 0; betas 0.9 0.999; decay 0; batch 8",
    # BERT-AL, "Experiment setting"
    "summarization bert-al": "steps 50000; linear; 2e-5; warm-up 10000; betas 0.9 0.999; decay 0; batch 16",
    # arXiv 2101.00406, appendix C
    "coreference cdlm": "epochs 10; linear; 3e-5; warm-up 0.1; betas 0.9 0.999; decay 0.01; batch 128",
    "document_matching cdlm": "epochs 8; linear; 3e-5; warm-up 0.1; betas 0.9 0.999; decay 0.01; batch 32",
    "multihop_qa cdlm": "epochs 5; linear; 1e-4; warm-up 100; betas 0.9 0.999; decay 0.01; batch 32",
    # arXiv 2402.17682, section 3.2 "Experimental Setup"
    "classification nextlevelbert": "epochs 20; linear; 5e-5; warm-up 0.1; betas 0.9 0.999; decay 0.01; batch 8",
    "multiple_choice nextlevelbert": "epochs 20; linear; 5e-5; warm-up 0.1; betas 0.9 0.999; decay 0.01; batch 8",
}


# Where a recipe says that it stands.
WHERE = {
    "nextlevelbert": "sections 2.2 and 3.1",
    "cdlm": "appendix B",
    "classification chunkbert": "section 4.3",
    "summarization bert-al": '"Experiment setting"',
    "coreference cdlm": "appendix C",
    "document_matching cdlm": "appendix C",
    "multihop_qa cdlm": "appendix C",
    "classification nextlevelbert": "section 3.2",
    "multiple_choice nextlevelbert": "section 3.2",
    "hate": '"Masked Sentence Prediction"',
}


@pytest.fixture
def parsed(monkeypatch, tmp_path, toy_encoder_path):
    """Reads a command line as the scripts do, and returns the options in place of running them."""

    def read(key: str, *words: str):
        found = []
        model_type = key.split()[-1]
        start = [
            "--model_type",
            model_type,
            "--train_file",
            str(tmp_path),
            "--output_dir",
            str(tmp_path / "o"),
            *words,
        ]
        if " " in key:
            argv = ["--task", key.split()[0], "--model", toy_encoder_path, *start]
            monkeypatch.setattr("nextlevelbert.tasks.run", lambda task: found.extend([task.options, task.args]))
            main = tasks.main
            if "halve_validation" in PAPERS[key]:
                argv += ["--validation_file", str(tmp_path)]
        else:
            argv = [*start, "--model", "m"] if model_type == "cdlm" else start
            kept = run.PRETRAINING[key]
            fake = run.Pretraining(kept.description, kept.options, lambda *options: found.extend(options))
            monkeypatch.setitem(run.PRETRAINING, key, fake)
            main = run.main
        monkeypatch.setattr(sys, "argv", ["script", *argv])
        main()
        return found

    return read


@pytest.mark.parametrize("key", PAPERS)
def test_a_recipe_is_printed_with_its_section(key, capsys):
    with_recipe(["--recipe", "paper"], key)
    [line] = capsys.readouterr().err.splitlines()
    assert WHERE[key] in line
    for name, value in PAPERS[key].items():
        listed = " ".join(map(str, value)) if isinstance(value, list) else value
        assert f"{name} {listed}" in line


@pytest.mark.parametrize("key", READ)
def test_a_recipe_is_what_the_paper_says(parsed, key):
    options = parsed(key, "--recipe", "paper")
    args = options[-1]
    if args.learning_rate is None:
        args.learning_rate = options[0].usual_learning_rate
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
    length = f"steps {args.max_steps}" if args.max_steps > 0 else f"epochs {args.num_train_epochs:g}"
    said = (
        f"{length}; {args.lr_scheduler_type.value}; {args.learning_rate:g}; warm-up {args.warmup_steps:g}; "
        f"betas {args.adam_beta1:g} {args.adam_beta2:g}; decay {args.weight_decay:g}; batch {batch}"
    )
    assert said == READ[key].replace("1e-4", "0.0001").replace("3e-5", "3e-05").replace("5e-5", "5e-05").replace(
        "2e-5", "2e-05"
    )
    assert against_paper(key, *options) == {"the paper's settings": "all that it names"}


def test_every_setting_is_an_option(parsed):
    for key, recipe in PAPERS.items():
        options = parsed(key)
        for name in recipe.keys() - {"batch_size"}:
            assert any(hasattr(each, name) for each in options), (key, name)


def test_the_rest_of_the_recipes(parsed):
    model, objective, _, _ = parsed("nextlevelbert", "--recipe=paper")
    assert (model.attention_dropout, model.loss, model.loss_mean, model.pooling) == (
        0.1, "smooth_l1", "sequences", "mean"
    )  # fmt: skip
    assert (objective.masking_probability, objective.mask_share, objective.random_share) == (0.15, 0.8, 0.1)
    assert objective.sequence_length == 512
    model, _, _, _ = parsed("hate", "--recipe", "paper")
    assert (model.sentence_pooling, model.loss, model.chunking) == ("cls", "p_norm", "sentences")
    options, args = parsed("classification chunkbert", "--recipe", "paper")
    assert (options.chunk_size, options.max_training_tokens, args.seeds) == (128, 4096, [0, 1, 2, 3, 4])
    options, args = parsed("summarization bert-al", "--recipe", "paper")
    assert (options.recurrence, args.adam_epsilon, args.early_stopping_patience) == ("replace", 1e-9, 50)


def test_what_differs_is_told(parsed):
    options = parsed("nextlevelbert", "--per_device_train_batch_size", "16", "--masking_probability", "0.3")
    assert against_paper("nextlevelbert", *options) == {
        "the paper's settings": "but for batch_size 16 (paper: 512), attention_dropout 0.0 (paper: 0.1), "
        "masking_probability 0.3 (paper: 0.15)"
    }
    options = parsed("nextlevelbert", "--recipe", "paper", "--learning_rate", "3e-4")  # what is given wins
    assert against_paper("nextlevelbert", *options) == {
        "the paper's settings": "but for learning_rate 0.0003 (paper: 0.0001)"
    }
    found = against_paper("nextlevelbert", SimpleNamespace(loss_mean="vectors"), *options)
    assert "loss_mean vectors (paper: sequences)" in found["the paper's settings"]
    assert against_paper("ranking nextlevelbert", *options) == {}


def test_the_batch_is_made_up_of_processes_and_steps(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "4")
    words = with_recipe(["--recipe", "paper", "--per_device_train_batch_size", "32"], "nextlevelbert")
    assert "--gradient_accumulation_steps=4" in words
    with pytest.raises(SystemExit):
        with_recipe(["--recipe", "paper", "--per_device_train_batch_size", "24"], "nextlevelbert")
    assert "The paper's batch of 512 is no multiple of 96" in capsys.readouterr().err
    for wrong in ("abc", "0"):  # which the parser refuses in its own words
        words = ["--recipe", "paper", "--per_device_train_batch_size", wrong]
        assert with_recipe(words, "nextlevelbert")[-len(words) :] == words


@pytest.mark.parametrize(
    ("words", "key", "message"),
    [
        (["--recipe", "papr"], "cdlm", "--recipe is paper, got 'papr'."),
        (["--recipe", "paper"], "ranking nextlevelbert", "No paper names settings for ranking with nextlevelbert;"),
    ],
)
def test_recipes_that_do_not_exist(words, key, message, capsys):
    with pytest.raises(SystemExit):
        with_recipe(words, key)
    assert message in capsys.readouterr().err


def test_help_offers_it_only_where_there_is_one(parsed, monkeypatch, capsys):
    for words, offered in ((["--task", "ranking"], False), (["--task", "multihop_qa"], True)):
        monkeypatch.setattr(sys, "argv", ["script", *words, "--help"])
        with pytest.raises(SystemExit):
            tasks.main()
        assert ("--recipe" in capsys.readouterr().out) == offered
