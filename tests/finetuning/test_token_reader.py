"""Batches of tokens: what is cut, padded and refused."""

import pytest
from datasets import Dataset
from tokenizers.processors import TemplateProcessing

from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.finetuning.labels import SINGLE, LabelSet
from nextlevelbert.finetuning.options import TextModelArguments
from nextlevelbert.finetuning.token_reader import TokenReader


@pytest.fixture
def token_reader(encoder, tmp_path):
    options = TextModelArguments(model=encoder, model_type="truncated")
    args = FinetuningArguments(output_dir=str(tmp_path), use_cpu=True)
    return TokenReader(args, LabelSet(SINGLE, ("n", "y")), options)


@pytest.mark.parametrize("keep_end", [False, True])
def test_tokens_are_cut_and_padded_on_the_right(token_reader, keep_end, caplog):
    tokenizer = token_reader.tokenizer
    rows = Dataset.from_list(
        [
            {"id": "a", "text": "two three four", "question": "one", "label": 0},
            {"id": "b", "text": "six", "question": "five", "label": 1},
        ]
    )
    token_reader.reading_limit = token_reader.window = 4
    expected = tokenizer("one two three four")["input_ids"]  # a question before its document
    expected = [*expected[:3], tokenizer.sep_token_id]
    if not keep_end:
        token_reader.family = "chunkbert"
        expected = tokenizer("one two three four")["input_ids"][:4]
    prepared = token_reader.prepare({"train": rows})["train"]

    assert token_reader.is_long["train"].tolist() == [True, False]
    assert "the first 4 tokens of documents are read; 1 are longer" in caplog.text

    batch = token_reader.collate([prepared[0], {"input_ids": [101, 102], "label": 1}])

    assert batch["input_ids"].tolist() == [expected, [101, 102, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch["labels"].tolist() == [0, 1]


def test_a_document_without_a_token_is_refused(token_reader):
    rows = [{"id": "a", "text": "one", "label": 0}, {"id": "b", "text": "\u200b", "label": 1}]
    with pytest.raises(ValueError, match="'b'"):
        token_reader.prepare({"train": Dataset.from_list(rows)})


def test_a_tokenizer_without_an_end_reads_the_first_tokens(token_reader):
    rows = Dataset.from_list([{"id": "a", "text": "one two three four five", "label": 0}])
    tokenizer = token_reader.tokenizer
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", pair="$A $B")
    token_reader.reading_limit = 3

    [ids] = token_reader.prepare({"train": rows})["train"]["input_ids"]

    assert tokenizer.convert_ids_to_tokens(ids) == ["one", "two", "three"]
