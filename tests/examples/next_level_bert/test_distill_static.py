"""The table of token vectors that two ridge regressions distil from a sentence encoder."""

import json

import numpy as np
import pytest

from nextlevelbert import load_chunk_encoder

from ...toys.encoders import word_tokenizer
from ...toys.vectors import save_random_table
from ..scripts import load_script

script = load_script("next_level_bert/distill_static.py")


def random_texts(words, count):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, 12)) for _ in range(count)]


@pytest.fixture
def words():
    return [word for word in word_tokenizer().get_vocab() if word.isalpha()]


def test_the_share_of_each_token_in_a_text(words):
    tokenizer = word_tokenizer()
    one, other = tokenizer.convert_tokens_to_ids(words[:2])

    shares = script.token_shares(tokenizer, [f"{words[0]} {words[1]} {words[0]}", ""]).toarray()

    assert shares[0, [one, other]] == pytest.approx([2 / 3, 1 / 3])
    assert shares.sum(axis=1) == pytest.approx([1, 0])


def test_both_regressions_are_the_normal_equations_of_ridge(words):
    rng = np.random.default_rng(0)
    tokenizer = word_tokenizer()
    shares = script.token_shares(tokenizer, random_texts(words, 60))
    table = rng.normal(size=(len(tokenizer), 5))
    targets = rng.normal(size=(60, 4))

    only_mapped = script.fit_table(table, shares, targets, map_only=True)
    fitted = script.fit_table(table, shares, targets)

    dense = shares.toarray()
    means = dense @ table
    centred = means - means.mean(axis=0)
    penalty = script.MAP_PENALTY * 60 * means.var(axis=0).mean() * np.eye(5)
    linear = np.linalg.solve(centred.T @ centred + penalty, centred.T @ targets)
    mapped = (table - means.mean(axis=0)) @ linear + targets.mean(axis=0)
    np.testing.assert_allclose(only_mapped, mapped)
    penalty = script.OFFSET_PENALTY * np.eye(len(tokenizer))
    offsets = np.linalg.solve(dense.T @ dense + penalty, dense.T @ (targets - dense @ mapped))
    np.testing.assert_allclose(fitted, mapped + offsets, atol=1e-3)


def test_a_teacher_that_is_itself_a_table_is_imitated(words, tmp_path, capsys):
    tokenizer = word_tokenizer()
    save_random_table(tokenizer, size=8, folder=tmp_path / "older", rows=len(tokenizer))
    save_random_table(tokenizer, size=6, folder=tmp_path / "teacher", rows=len(tokenizer))
    path = tmp_path / "texts.jsonl"
    with path.open("w") as file:
        for text in random_texts(words, 300):
            row = {"text": text, "source": "toys", "licence": "CC0-1.0"}
            file.write(json.dumps(row) + "\n")
    argv = [str(path), "--teacher", f"{tmp_path}/teacher", "--table", f"{tmp_path}/older"]

    script.main([*argv, "--output_dir", f"{tmp_path}/new"])

    assert float(capsys.readouterr().out.rsplit(maxsplit=1)[1]) > 0.95
    assert load_chunk_encoder(str(tmp_path / "new")).encoder.hidden_size == 6
    assert "| toys | CC0-1.0 | 270 |" in (tmp_path / "new" / "README.md").read_text()
