"""The recipe that a corpus stores: the splitter of its sentences."""

import pytest

from nextlevelbert import ChunkingRule, NextLevelBertModel, encode_corpus

from ..toys.corpora import DOCUMENTS, SMALL, in_halves


def shouting(text):
    return [text.upper()]


def test_a_splitter_is_noted_by_its_name(source, rule, tmp_path):
    by_sentences = ChunkingRule.from_tokenizer(source.tokenizer, 16, "sentences")
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=16, chunking="sentences")
    corpus = encode_corpus(
        DOCUMENTS, source, by_sentences, tmp_path / "halves", splitter=in_halves, **SMALL
    )

    assert (
        corpus["tale"].spans.tolist()
        == model.encode(DOCUMENTS[3].text, splitter=in_halves).spans.tolist()
    )

    corpus.check_model(model.config, in_halves)
    with pytest.raises(ValueError, match=f"splitter: '{in_halves.__module__}.in_halves', None"):
        corpus.check_model(model.config)


@pytest.mark.parametrize(
    ("splitter", "mode", "message"),
    [
        (lambda text: [text], "sentences", "lambda"),
        (in_halves, "fixed", "fixed"),
        (shouting, "sentences", r"'whale'.*must return parts of the text"),
    ],
)
def test_splitters_that_are_refused(source, tmp_path, splitter, mode, message):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16, mode)
    with pytest.raises(ValueError, match=message):
        encode_corpus(DOCUMENTS, source, rule, tmp_path / "none", splitter=splitter, **SMALL)
