"""From a document to BERTSUM's format, and from scores to a summary."""

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from nextlevelbert.models.bert_al_sentences import (
    encode_sentences,
    pad_batch,
    select_sentences,
    split_document,
)


def test_selection_worked_by_hand():
    scores = np.array([0.1, 0.9, 0.5, 0.9, 0.2])

    assert select_sentences(scores, 3) == [1, 2, 3]
    assert select_sentences(scores, 1) == [1]
    assert select_sentences(scores, 9) == [0, 1, 2, 3, 4]

    texts = ["so it was", "The cat sat down.", "a dog", "Then the cat SAT down?", "the cat sat"]

    # The fourth says "the cat sat" after the second did, and so does the last.
    assert select_sentences(scores, 3, texts) == [0, 1, 2]


def test_the_format_of_bertsum(minilm):
    tokenizer = minilm.tokenizer
    encoded = encode_sentences(["Call me Ishmael.", "[SEP] is a word.", "Yes!"], tokenizer)
    ids, types = (values.tolist() for values in encoded)
    words = ["[CLS]", "call", "me", "is", "##hma", "##el", ".", "[SEP]"]

    assert tokenizer.convert_ids_to_tokens(ids[:8]) == words
    assert types == [0] * 8 + [1] * (len(ids) - 12) + [0] * 4
    assert (ids.count(tokenizer.cls_token_id), ids.count(tokenizer.sep_token_id)) == (3, 3)

    batch = pad_batch([encoded, (encoded[0][:3], encoded[1][:3])], 9)

    assert batch["attention_mask"].sum(dim=1).tolist() == [len(ids), 3]
    assert batch["input_ids"][1, 3:].unique().tolist() == [9]
    assert batch["token_type_ids"][0].tolist() == types


def test_a_word_that_starts_a_sentence_in_the_vocabulary_becomes_the_unknown_one():
    words = ["?", "<s>", "</s>", ".", "It"]
    model = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "?"))
    model.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s|\.|<s>"), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="?", cls_token="<s>", sep_token="</s>"
    )
    ids, _ = encode_sentences(["It<s>.", "It"], tokenizer)

    assert ids.tolist() == [1, 4, 0, 3, 2, 1, 4, 2]


def test_sentences_keep_their_places():
    text = (
        "One is here. Two,\nin two lines.\n\n  A heading\n \nThree (3.5 of it, see"
        " a.example.com).\n"
    )
    sentences = [
        "One is here.",
        "Two,\nin two lines.",
        "A heading",
        "Three (3.5 of it, see a.example.com).",
    ]
    for document, expected in ((text, text), (sentences, "\n".join(sentences))):
        joined, spans = split_document(document)
        assert joined == expected
        assert [joined[start:end] for start, end in spans] == sentences


@pytest.mark.parametrize(
    ("document", "message"), [(" \n\n ", "no words"), (["A sentence.", 7], "Sentence 1")]
)
def test_documents_that_are_refused(document, message):
    with pytest.raises(ValueError, match=message):
        split_document(document)
