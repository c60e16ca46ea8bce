"""Two prompts in one model, against sentence-transformers' `prompt_name` and `prompt`."""

import json

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModel, BertConfig, PreTrainedTokenizerFast

from nextlevelbert import (
    ChunkVectors,
    NextLevelBertModel,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.fitting import combine_chunk_encoders
from nextlevelbert.models.prompts import Prompts
from nextlevelbert.search import embed, library
from nextlevelbert.search.reading import ReadingOptions

from ..toys.encoders import CONFIGS, TEXT, save_encoder, word_tokenizer
from ..toys.vectors import close, unit

E5 = {"query": "query : ", "passage": "passage : "}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of RoBERTa's kind, whose tokens hold the space before a word."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "<pad>", "</s>", *letters, "Ġt", "Ġth", "Ġthe", "th", "the"]
    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("t", "h"), ("th", "e")]
    backend = Tokenizer(models.BPE({token: row for row, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def encoder_of(folder, kind: str, pooling: str = "mean", include_prompt: bool = True, **settings):
    """Saves an encoder with two prompts; its tokens are words, or bytes of words."""
    config = CONFIGS["bert"]
    tokenizer = None
    if kind == "bytes":
        config = BertConfig(**{**config.to_dict(), "vocab_size": 300, "pad_token_id": 1})
        tokenizer = byte_tokenizer()
    arguments = {"prompts": E5, **settings}
    return save_encoder(folder, config, tokenizer, pooling, include_prompt, **arguments)


def check_chunks(path, model, text=TEXT, **prompt):
    """Compares plain chunk vectors with those of sentence-transformers for the same prompt."""
    book = model.encode(text, **prompt)
    chunks = [text[start:end] for start, end in book.spans.tolist()]
    original = SentenceTransformer(path, device="cpu")
    expected = original.encode(chunks, convert_to_tensor=True, **prompt)
    assert len(chunks) > 2
    assert "".join(chunks).replace(" ", "") == text.replace(" ", "")
    close(book.plain, expected)
    return book


@pytest.fixture(scope="module")
def e5_path(tmp_path_factory) -> str:
    return encoder_of(tmp_path_factory.mktemp("e5"), "words")


@pytest.fixture(scope="module")
def e5(e5_path) -> NextLevelBertModel:
    return NextLevelBertModel.from_chunk_encoder(e5_path, chunk_size=12, num_hidden_layers=1)


@pytest.mark.parametrize(
    "prompt",
    [
        {},
        {"prompt_name": "query"},
        {"prompt_name": "passage"},
        {"prompt_name": "document"},  # of every sentence-transformers model; here without a text
        {"prompt": "the cat : "},
        {"prompt": "the cat : ", "prompt_name": "query"},
    ],
    ids=str,
)
def test_every_chunk_begins_with_the_prompt(e5_path, e5, prompt):
    check_chunks(e5_path, e5, **prompt)


@pytest.mark.parametrize("text", ["the cat sat", "cat"])
@pytest.mark.parametrize("prompt", ["query : ", "query:", "Represent this:\n"])
def test_the_first_word_behind_a_prompt_has_the_tokens_of_its_place(tmp_path, prompt, text):
    """In byte-level BPE the space behind a prompt belongs to the next word."""
    path = encoder_of(tmp_path, "bytes", prompts={"query": prompt})
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=40, pooling="plain")

    book = model.encode(text, prompt_name="query")

    original = SentenceTransformer(path, device="cpu")
    expected = original.encode([text], prompt_name="query", convert_to_tensor=True)
    assert book.spans.tolist() == [[0, len(text)]]
    close(book.plain, expected)


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "weightedmean", "lasttoken"])
def test_pooling_that_leaves_out_the_prompt(tmp_path, pooling):
    path = encoder_of(tmp_path, "words", pooling, include_prompt=False)
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=12, pooling="plain")

    query = check_chunks(path, model, prompt_name="query")
    check_chunks(path, model)

    model.save_pretrained(tmp_path / "model")
    again = AutoModel.from_pretrained(tmp_path / "model")
    close(again.encode(TEXT, prompt_name="query").plain, query.plain)
    assert load_chunk_encoder(tmp_path / "model").encoder.fingerprint() == (
        model.config.chunk_encoder_fingerprint
    )


def test_pooling_leaves_out_the_space_behind_a_prompt_too(tmp_path):
    """sentence-transformers counts the tokens of the prompt alone, whose last one is a space."""
    path = encoder_of(tmp_path, "bytes", include_prompt=False)
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=40, pooling="plain")

    plain = model.encode("the cat sat", prompt_name="query").plain

    original = SentenceTransformer(path, device="cpu")
    expected = original.encode(["the cat sat"], prompt_name="query", convert_to_tensor=True)
    close(plain, expected)


def test_pooling_that_leaves_out_the_prompt_counts_all_special_tokens_but_one(tmp_path):
    """As sentence-transformers does: with two behind a text, a word of it is left out, too."""
    tokenizer = word_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP] [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    settings = {"include_prompt": False, "prompts": E5}
    path = save_encoder(tmp_path, CONFIGS["bert"], tokenizer, **settings)
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=13, pooling="plain")

    check_chunks(path, model, prompt_name="query")


def test_a_default_prompt_is_used_if_no_other_is_chosen(tmp_path):
    path = encoder_of(tmp_path, "words", default_prompt_name="passage")
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=12, pooling="plain")

    book = check_chunks(path, model)

    close(book.plain, model.encode(TEXT, prompt_name="passage").plain)
    ids = model.tokenizer(TEXT, return_tensors="pt")["input_ids"]
    close(model(input_ids=ids).chunk_vectors[0], book.plain)
    without = check_chunks(path, model, prompt="")
    assert len(without.plain) < len(book.plain)


@pytest.mark.parametrize("choice", [{}, {"prompt": ""}, {"prompt_name": "query"}], ids=str)
def test_an_empty_prompt_overrides_the_default_prompt(tmp_path, choice):
    prompts = {"query": "", "passage": "passage : "}
    path = encoder_of(tmp_path, "words", prompts=prompts, default_prompt_name="passage")
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=12)
    model.save_pretrained(tmp_path / "model")
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")

    vector = opened.encode([TEXT, ""], convert_to_tensor=True, **choice)[0]

    close(vector, model.encode(TEXT, **choice).document)


def test_a_question_has_no_prompt_unless_there_is_one_for_questions(tmp_path):
    path = encoder_of(
        tmp_path, "words", prompts={"passage": "passage : "}, default_prompt_name="passage"
    )
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=12)

    vector = model.encode_query("the cat sat")

    original = SentenceTransformer(path, device="cpu")
    close(vector, unit(original.encode_query("the cat sat", convert_to_tensor=True)))


def test_a_saved_model_keeps_its_prompts(e5, tmp_path):
    e5.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config_sentence_transformers.json").read_text())
    again = AutoModel.from_pretrained(tmp_path)
    opened = SentenceTransformer(str(tmp_path), device="cpu")

    assert settings["prompts"] == again.config.prompts == E5
    assert load_chunk_encoder(tmp_path).prompts.texts == E5
    for name in ("query", "passage", "document"):
        vector = opened.encode(TEXT, prompt_name=name, convert_to_tensor=True)
        close(vector, e5.encode(TEXT, prompt_name=name).document)
        close(vector, again.encode(TEXT, prompt_name=name).document)


def test_a_batch_of_ids_may_hold_several_prompts(e5):
    texts = [f"query : {TEXT}", TEXT, f"passage : {TEXT}", "the cat"]
    batch = e5.tokenizer(texts, padding=True, return_tensors="pt")

    vectors = e5(**batch).pooler_output

    names = ["query", "document", "passage"]
    expected = [e5.encode(TEXT, prompt_name=name).document for name in names]
    close(vectors[:3], torch.stack(expected))
    close(vectors[3], e5.encode("the cat").document)


def test_a_wrong_name_is_answered_with_the_right_ones(e5_path, e5, tmp_path):
    with pytest.raises(
        ValueError, match=r"no prompt 'querry'\. The names are query, document, pass"
    ):
        e5.encode(TEXT, prompt_name="querry")
    with pytest.raises(ValueError, match="no prompt 'querry'"):
        encode_corpus([TEXT], e5_path, e5.config.chunking_rule(), tmp_path, prompt_name="querry")
    with pytest.raises(ValueError, match="'the cat' would run into the first word"):
        e5.encode(TEXT, prompt="the cat")
    with pytest.raises(ValueError, match="prompt included"):
        e5.encode(TEXT, prompt="the cat sat on the red mat and the dog ran : ")


def test_the_plan_counts_chunks_with_their_prompt(e5):
    for prompt in ("", "the red dog : "):
        assert e5.plan(TEXT, prompt=prompt).chunks == len(e5.encode(TEXT, prompt=prompt).plain)

    assert e5.plan(TEXT, prompt_name="query").tokens == e5.plan(TEXT).tokens


def test_an_empty_document_has_no_token_behind_a_prompt(tmp_path):
    path = encoder_of(tmp_path, "bytes")
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=40, pooling="plain")
    with pytest.warns(UserWarning, match="contain no token"):
        book = model.encode("", prompt_name="query")

    assert len(book.plain) == 0


def test_a_corpus_holds_passages(e5_path, e5, tmp_path):
    rule = e5.config.chunking_rule()
    corpus = encode_corpus([("a", TEXT)], e5_path, rule, tmp_path / "passages", progress=False)
    questions = encode_corpus(
        [("a", TEXT)],
        e5_path,
        rule,
        tmp_path / "questions",
        progress=False,
        prompt_name="query",
    )

    close(corpus["a"].plain.float(), e5.encode(TEXT, prompt_name="passage").plain, atol=1e-3)
    close(questions["a"].plain.float(), e5.encode(TEXT, prompt_name="query").plain, atol=1e-3)
    assert corpus.recipe["chunking"]["prompt"] == "passage : "
    corpus.check_model(e5.config)
    with pytest.raises(ValueError, match=r"chunking\.prompt: 'query : ', 'passage : '"):
        questions.check_model(e5.config)
    make_rows = ChunkVectors(load_chunk_encoder(e5_path), rule)
    assert make_rows.recipe == corpus.recipe
    with pytest.raises(ValueError, match="query"):  # another recipe in the same folder
        encode_corpus([("a", TEXT)], e5_path, rule, tmp_path / "questions", progress=False)
    assert isinstance(corpus, VectorCorpus)


def test_commands_ask_with_the_query_prompt_and_read_with_the_passage_prompt(e5, tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "book.txt").write_text(TEXT)
    reading = ReadingOptions(cache_dir=tmp_path / "cache")

    answer = library.open_library(str(folder), e5, reading).ask("the red dog ran")
    embed.run(str(folder), tmp_path / "rows.parquet", e5, reading, rows="chunks")

    passages = e5.encode(TEXT, prompt_name="passage").plain
    question = e5.encode("the red dog ran", prompt_name="query").plain[0]
    close(torch.from_numpy(answer.cosine), passages @ question, atol=1e-3)
    rows = torch.tensor(embed.pq.read_table(tmp_path / "rows.parquet")["vector"].to_pylist())
    close(rows, passages, atol=1e-3)


def test_prompts_of_a_static_encoder(tmp_path, e5_path):
    """Its vector is the mean over the prompt's tokens and the text's."""
    torch.manual_seed(0)
    tokenizer = load_chunk_encoder(e5_path).tokenizer
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    table = modules.StaticEmbedding(backend, embedding_weights=torch.randn(len(tokenizer), 32))
    path = str(tmp_path / "static")
    SentenceTransformer(modules=[table], prompts=E5, device="cpu").save(path)

    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=12, num_hidden_layers=0)

    check_chunks(path, model, prompt_name="query")
    check_chunks(path, model)


def test_an_encoder_of_several_parts_keeps_prompts(e5_path, tmp_path):
    source = load_chunk_encoder(e5_path)
    texts = [TEXT, "the cat sat on the mat ."]
    hybrid = combine_chunk_encoders(
        [source], texts, tmp_path, weights=[1.0], whiten=[False], chunk_size=12
    )
    model = NextLevelBertModel.from_chunk_encoder(hybrid, chunk_size=12, num_hidden_layers=0)

    book = model.encode(TEXT, prompt_name="query")

    chunks = [TEXT[start:end] for start, end in book.spans.tolist()]
    original = SentenceTransformer(e5_path, device="cpu")
    expected = original.encode(chunks, prompt_name="query", convert_to_tensor=True)
    mean = hybrid.encoder.model.whitenings[0].mean
    close(book.plain, unit(expected - mean))
    assert model.config.prompts == E5


def test_passages_get_the_first_of_the_usual_prompts_that_has_a_text():
    """The order of sentence-transformers' `encode_document`."""
    texts = {"corpus": "c: ", "passage": "p: ", "document": "d: "}

    assert Prompts(texts).passage == "d: "
    assert Prompts({**texts, "document": ""}).passage == "p: "
    assert Prompts({"corpus": "c: "}).passage == "c: "
    assert Prompts({"other": "o: "}, default_name="other").passage == "o: "
