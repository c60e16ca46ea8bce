"""`encode` and `plan`: what they take, in any groups, and what they leave as it was."""

import pytest
import torch
from datasets import Dataset

from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.fitting import combine_chunk_encoders

from ..toys.vectors import TEXTS, close, save_random_table


def test_the_plan_counts_what_encoding_will_do(toy):
    text = "word " * 60 + "tail"

    plan = toy.plan(text)

    assert (plan.tokens, plan.chunks, plan.windows) == (61, 11, 2)
    assert len(toy.encode(text).chunks) == plan.chunks
    assert [toy.plan("word " * count).windows for count in (0, 1, 48, 49, 84, 85)] == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]
    assert toy.plan([]) == toy.encode([]) == []


@pytest.mark.parametrize(
    "made", [iter, lambda texts: Dataset.from_dict({"text": texts}).to_iterable_dataset()]
)
def test_documents_come_in_every_form_that_people_have(toy, made):
    texts = ["the sea", "a whale and a ship", "the storm"]

    assert toy.plan(made(texts)) == toy.plan(texts)
    for embedding, expected in zip(toy.iter_encode(made(texts)), toy.encode(texts), strict=True):
        close(embedding.document, expected.document)


def test_groups_and_their_order_change_nothing(toy, monkeypatch):
    texts = ["one", "word " * 200, "two", "word " * 60, "three"]
    expected = toy.encode(texts)
    monkeypatch.setattr("nextlevelbert.models.tokenizing._CHARACTERS_PER_GROUP", 40)

    for alone, other in zip(toy.encode(texts), expected, strict=True):
        close(alone.document, other.document)
        close(alone.chunks, other.chunks)


def test_the_first_group_is_encoded_before_later_ones_are_read(toy, monkeypatch):
    monkeypatch.setattr("nextlevelbert.models.tokenizing._CHARACTERS_PER_GROUP", 1)
    read = []

    def texts():
        for number in range(20):
            read.append(number)
            yield "a whale"

    next(toy.iter_encode(texts()))

    # The group that is encoded, and one more than there are threads, of which there are up to four.
    assert len(read) <= 6


@pytest.fixture
def five_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(5)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("has_transformer", "layers", "threads"), [(False, 0, 3), (True, 0, 5), (False, 1, 5)]
)
def test_vectors_without_layers_leave_cores_to_the_threads_that_tokenise(
    toy_encoder_path, tmp_path, monkeypatch, five_threads, has_transformer, layers, threads
):
    whole = load_chunk_encoder(toy_encoder_path)
    save_random_table(whole.tokenizer, 32, tmp_path / "static")
    loaded = load_chunk_encoder(tmp_path / "static")
    if has_transformer:
        parts = [loaded, whole]
        loaded = combine_chunk_encoders(
            parts, TEXTS, tmp_path / "both", weights=[1, 1], chunk_size=8
        )
    model = NextLevelBertModel.from_chunk_encoder(loaded, chunk_size=8, num_hidden_layers=layers)
    monkeypatch.setattr("nextlevelbert.models.document_encoding.default_threads", lambda: 2)
    used = []
    monkeypatch.setattr(
        model.get_chunk_encoder(), "check_ids", lambda _: used.append(torch.get_num_threads())
    )

    for _ in model.iter_encode(["a whale"]):
        between = torch.get_num_threads()

    assert (used, between) == ([threads], 5)


@pytest.mark.parametrize("whiten_chunks", [False, True])
def test_search_vectors_are_whitened_and_have_length_one(toy_encoder_path, whiten_chunks):
    """W (v - m), scaled to length 1."""
    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=8, whiten_chunks=whiten_chunks
    )
    plain = torch.randn(5, 32).double()
    expected = plain
    if whiten_chunks:
        mean = torch.randn(32)
        weight = torch.randn(32, 32)
        model.whitening.load_state_dict({"mean": mean, "weight": weight})
        expected = torch.stack([weight.double() @ (vector - mean) for vector in plain])

    vectors = model.search_vectors(plain.float())

    close(vectors, (expected / expected.norm(dim=1, keepdim=True)).float(), atol=1e-5)
    close(model.search_vectors(plain[0].float()), vectors[0])


def test_a_question_of_several_chunks_has_their_mean(toy):
    question = "a whale and a ship and the storm and the sea"

    vector = toy.encode_query(question)

    plain = toy.encode(question).plain
    assert len(plain) > 1
    close(vector, toy.search_vectors(plain.mean(dim=0)))
    close(toy.encode_query([question, "the sea"])[0], vector)


@pytest.mark.filterwarnings("ignore:Document")
def test_a_question_without_a_token_is_refused(toy):
    with pytest.raises(ValueError, match=r"question ' ' holds no token"):
        toy.encode_query(["the sea", " "])


def test_encoding_leaves_dropout_out_and_the_model_in_its_mode(toy):
    expected = toy.encode(TEXTS[0])
    toy.train()

    book = toy.encode(TEXTS[0])

    close(book.document, expected.document)
    assert toy.training


def test_blank_text_has_the_zero_vector_and_a_warning(toy):
    with pytest.warns(UserWarning, match=r"Document\(s\) 1, 3 contain no token"):
        books = toy.encode(["words", "", "more words", " \n\t"])

    assert (books[1].document == 0).all()
    assert books[1].chunks.shape == books[3].plain.shape == (0, 32)
    assert books[1].spans.shape == (0, 2)
    batch = toy.tokenizer(["words", ""], padding=True, return_tensors="pt")
    with pytest.warns(UserWarning, match=r"Document\(s\) 1 contain"), torch.no_grad():
        output = toy(**batch)
    assert (output.pooler_output[1] == 0).all()
    close(output.pooler_output[0], books[0].document)


def test_questions_come_from_a_generator_or_not_at_all(toy_checkpoint):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    questions = ["a cat", "the red dog ran"]

    vectors = model.encode_query(iter(questions))

    assert torch.equal(vectors, model.encode_query(questions))
    assert model.encode_query([]).shape == (0, 32)


def test_functional_gradients_are_those_of_backward(toy_checkpoint):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    batch = dict(model.tokenizer(["the whale and the sea " * 20], return_tensors="pt"))
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def total(values):
        return torch.func.functional_call(model, values, (), batch).pooler_output.sum()

    gradients = torch.func.grad(total)(weights)

    model(**batch).pooler_output.sum().backward()
    table = model.special_embeddings.weight
    assert table.grad.abs().sum() > 0
    close(gradients["special_embeddings.weight"], table.grad)


def test_vectors_in_a_data_set_are_named(toy):
    rows = Dataset.from_dict({"text": ["the sea", "a ship"]})

    with pytest.raises(TypeError, match=r"Give its \.document, \.chunks or \.plain"):
        rows.map(lambda row: {"vector": toy.encode(row["text"])})

    mapped = rows.map(lambda row: {"vector": toy.encode(row["text"]).document})

    close(torch.tensor(mapped["vector"][0]), toy.encode("the sea").document)
