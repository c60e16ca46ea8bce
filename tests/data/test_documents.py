"""Documents from whatever holds texts."""

import pytest
from datasets import Dataset

from nextlevelbert import Document
from nextlevelbert.data.documents import as_documents


def test_every_form_that_people_have():
    table = Dataset.from_dict({"text": ["a", "b"], "id": ["x", None], "year": [1, 2]})
    expected = [Document("x", "a", {"year": 1}), Document("1", "b", {"year": 2})]

    assert list(as_documents(table)) == list(as_documents(table.to_iterable_dataset())) == expected
    assert list(
        as_documents(iter([{"body": "a"}, ("y", "b"), "c", Document("z", "d")]), "body")
    ) == [Document("0", "a"), Document("y", "b"), Document("2", "c"), Document("z", "d")]
    assert list(as_documents(table["text"])) == [Document("0", "a"), Document("1", "b")]
    assert list(as_documents("one text")) == [Document("0", "one text")]
    assert list(as_documents([{"text": "a", "id": 7}])) == [Document("7", "a")]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ({"text": ["a"]}, "dict"),
        ({"a"}, "set"),
        ([{"body": "a"}], "'text'"),
        ([("x", 7)], "'x'"),
        ([None], "0"),
        (["a", "\ud800"], "'1'"),
        ([b"bytes"], "b'bytes'"),
    ],
)
def test_what_is_no_document(documents, message):
    with pytest.raises((TypeError, ValueError), match=message):
        list(as_documents(documents))


def test_a_document_is_printed_without_its_text():
    book = Document("emma", "x" * 8_944, {"year": 1815, "pages": [0]})

    assert repr(book) == "Document(id='emma', 8,944 characters, metadata: year, pages)"
    assert repr(Document("a", "text")) == "Document(id='a', 4 characters)"
