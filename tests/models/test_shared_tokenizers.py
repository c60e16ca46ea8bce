"""A document is read the same, whatever other threads do with the model's tokenizer."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModel, PreTrainedTokenizerFast

import nextlevelbert
from nextlevelbert.models import tokenizing
from nextlevelbert.models.bert_al_sentences import encode_sentences
from nextlevelbert.models.tokenizing import private_tokenizer, tokenize_document

SYLLABLES = [consonant + vowel for consonant in "bcdfglmnprst" for vowel in "aeiou"]
QUESTIONS = ["who?", "what did the keeper write about the height of the sea, and when?"]


def random_texts(count, words=150):
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(count):
        lengths = rng.integers(2, 6, words)
        texts.append(" ".join("".join(rng.choice(SYLLABLES, length)) for length in lengths))
    return texts


def word_piece():
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend, trainers.WordPieceTrainer, {}


def byte_level_bpe():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend, trainers.BpeTrainer, {}


def unigram():
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend, trainers.UnigramTrainer, {"unk_token": "[UNK]"}


def bpe_across_words():
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return backend, trainers.BpeTrainer, {}


@cache
def trained(kind):
    """Trains a tokenizer of a kind on a few texts; returns it as a string."""
    backend, new_trainer, settings = kind()
    trainer = new_trainer(
        vocab_size=300,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **settings,
    )
    backend.train_from_iterator([*random_texts(20), *QUESTIONS], trainer)
    return backend.to_str()


@pytest.fixture(params=[word_piece, byte_level_bpe, unigram])
def backend(request):
    return Tokenizer.from_str(trained(request.param))


def new_tokenizer(backend):
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(backend.to_str()),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def test_two_threads_read_while_a_third_pads_and_truncates(backend):
    stock = new_tokenizer(backend)
    shared = new_tokenizer(backend)
    texts = random_texts(60)
    expected = stock(texts, add_special_tokens=False)["input_ids"]
    is_over = threading.Event()

    def ask_questions():
        while not is_over.is_set():
            shared(QUESTIONS, padding=True, truncation=True, max_length=8)
            shared(QUESTIONS, padding="max_length", max_length=32)

    def read(text):
        return tokenize_document(shared, text).input_ids.tolist()

    def read_sentence(text):
        ids, _ = encode_sentences([text], shared)
        return ids.tolist()[1:-1]

    questioner = threading.Thread(target=ask_questions)
    questioner.start()
    with ThreadPoolExecutor(2) as pool:
        during = list(pool.map(read, texts))
        sentences = list(pool.map(read_sentence, texts))
    is_over.set()
    questioner.join()

    afterwards = [read(text) for text in texts]
    assert during == expected
    assert sentences == expected
    assert afterwards == expected


@pytest.mark.parametrize("split_special_tokens", [False, True])
@pytest.mark.parametrize("kind", [word_piece, byte_level_bpe, unigram, bpe_across_words])
def test_a_long_text_has_the_same_tokens_in_pieces(kind, split_special_tokens, monkeypatch):
    monkeypatch.setattr(tokenizing, "_PIECE_CHARACTERS", 500)
    backend = Tokenizer.from_str(trained(kind))
    tokenizer = new_tokenizer(backend)
    backend.encode_special_tokens = split_special_tokens
    texts = [*random_texts(3), "", "short", "[SEP] ".join(random_texts(3)), "x" * 2_000]

    documents = private_tokenizer(tokenizer, split_special_tokens)(texts)

    for text, document in zip(texts, documents, strict=True):
        expected = backend.encode(text, add_special_tokens=False)
        spans = zip(document.char_starts.tolist(), document.char_ends.tolist(), strict=True)
        assert document.input_ids.tolist() == expected.ids
        assert list(spans) == expected.offsets


def test_pieces_of_a_long_text_end_before_a_space_between_words(monkeypatch):
    monkeypatch.setattr(tokenizing, "_PIECE_CHARACTERS", 6)

    borders = tokenizing.piece_borders("one two, three four  five. Six Seven")

    assert borders == [0, 14, 36]


def test_the_caller_s_tokenizer_keeps_its_settings(backend):
    tokenizer = new_tokenizer(backend)
    tokenizer(QUESTIONS, padding=True, truncation=True, max_length=8)
    before = tokenizer.backend_tokenizer.to_str()

    tokenize_document(tokenizer, QUESTIONS[1])

    assert tokenizer.backend_tokenizer.to_str() == before


def test_tokenizers_and_their_words_are_freed_with_their_model():
    texts = random_texts(3)
    references = []
    for _ in range(2):
        model = AutoModel.from_pretrained(nextlevelbert.static_checkpoint())
        model.encode(texts)
        table = private_tokenizer(model.tokenizer).look_up_words
        references += map(weakref.ref, (model, model.tokenizer, table))
    del model, table
    gc.collect()

    assert [reference() for reference in references] == [None] * 6
