"""Layouts of CDLM against strings and positions written by hand."""

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoProcessor, BertConfig, BertModel, RobertaTokenizer

from nextlevelbert import (
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
    CdlmModel,
    CdlmProcessor,
    read_marked,
)

from ..toys.vectors import TINY

MARKERS = ["<doc-s>", "</doc-s>", "<m>", "</m>", "[q]", "[/q]", "<t>", "</t>", "<s>", "</s>"]


def byte_level_tokenizer():
    """One of RoBERTa's kind that knows single bytes; ``<s>`` and ``</s>`` are its [CLS] and
    [SEP]."""
    words = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
    return RobertaTokenizer(vocab={word: index for index, word in enumerate(words)}, merges=[])


@pytest.fixture(scope="module")
def model(toy_encoder_path):
    return CdlmModel.from_encoder(toy_encoder_path, max_length=64, attention_window=8)


@pytest.fixture(scope="module")
def processor(model):
    return CdlmProcessor.from_model(model)


@pytest.fixture(scope="module")
def roberta():
    """A processor over a tokenizer of RoBERTa's kind."""
    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens(
        {"extra_special_tokens": MARKERS}, replace_extra_special_tokens=False
    )
    return CdlmProcessor(tokenizer, 120)


def tokens(processor, row):
    return processor.tokenizer.convert_ids_to_tokens(row["input_ids"])


def words(processor, row):
    return " ".join(tokens(processor, row))


def where(mask):
    return [position for position, value in enumerate(mask) if value]


# Sets of documents.


def test_documents_stand_between_separators(processor):
    batch = processor([["It rained.", "Rain fell all day."], ["Tea."]])

    assert processor.tokenizer.batch_decode(batch["input_ids"]) == [
        "[CLS] <doc-s> it rained. </doc-s> <doc-s> rain fell all day. </doc-s> [SEP]",
        "[CLS] <doc-s> tea. </doc-s> [SEP]" + " [PAD]" * 8,
    ]
    assert batch["attention_mask"].sum(dim=1).tolist() == [14, 6]
    assert batch["global_attention_mask"].tolist() == [[1] + [0] * 13] * 2
    assert {values.dtype for values in batch.values()} == {torch.int64}

    one = processor(["It rained.", "Rain fell all day."])  # one set without a list around it

    assert torch.equal(one["input_ids"], batch["input_ids"][:1])

    plain = processor(
        text=["Tea."], common_kwargs={"return_tensors": "pt"}
    )  # as sentence-transformers calls it

    assert torch.equal(
        plain["input_ids"], processor.tokenizer(["Tea."], return_tensors="pt")["input_ids"]
    )


def test_what_a_user_writes_is_text(processor):
    row = processor.cluster(["a <doc-s> b </doc-s> [SEP] [CLS] <m> [PAD] c"])
    expected = (
        "[CLS] <doc-s> a < doc - s > b < / doc - s > [ sep ] [ cl ##s ] < m > [ pad ] c </doc-s>"
        " [SEP]"
    )

    assert words(processor, row) == expected

    piece = processor.tokenize("a <m>")

    assert piece.ids == processor.tokenizer.convert_tokens_to_ids(["a", "<", "m", ">"])
    assert processor.cluster([piece, "b"]) == processor.cluster(
        ["a <m>", "b"]
    )  # tokenised once, laid out often


def test_the_mask_token_is_what_it_says(processor):
    text = "It [MASK] all [MASK]."
    row = processor.mentions([text, "[MASK]"], [(0, 14, 20), (0, 3, 9)])
    expected = (
        "[CLS] <doc-s> it <m> [MASK] </m> all <m> [MASK] </m> . </doc-s> <doc-s> [MASK] </doc-s>"
        " [SEP]"
    )

    assert words(processor, row) == expected
    assert row["mention_spans"] == [[8, 9], [4, 5]]


def test_the_longest_documents_are_cut_and_markers_never(processor):
    long = "one two three four five six seven eight nine ten"
    short = "one two"
    # 20 - 2 - 3 * 2 = 12 tokens; the short one has 2, the others 5 each and lose 5. Alone a
    # document has room.
    with pytest.warns(UserWarning, match="2 of 5 documents lose 10 tokens"):
        batch = processor([[long, short, long], [short], [long]], max_length=20)

    assert (
        processor.tokenizer.decode(batch["input_ids"][0])
        == "[CLS] <doc-s> one two three four five </doc-s> <doc-s> one two </doc-s> "
        "<doc-s> one two three four five </doc-s> [SEP]"
    )
    assert processor.cluster([long, short, long], max_length=20)["lost_tokens"] == [5, 0, 5]
    assert processor.cluster([long, short, long], max_length=30)["lost_tokens"] == [
        0,
        0,
        0,
    ]  # 22 and 8 markers


# Mentions.

STORM = ["The storm cut power.", "Power was lost in storms."]


def test_mentions_are_marked_and_found(processor):
    row = processor.mentions(
        STORM, [(0, 4, 9), (1, 18, 24), (0, 10, 19), (1, 0, 5)], [(0, 1), (2, 3)], [1, 0]
    )

    assert (
        words(processor, row) == "[CLS] <doc-s> the <m> storm </m> <m> cut power </m> . </doc-s> "
        "<doc-s> <m> power </m> was lost in <m> storms </m> . </doc-s> [SEP]"
    )
    assert row["mention_spans"] == [[4, 5], [20, 21], [7, 9], [14, 15]]
    assert where(row["global_attention_mask"]) == [0, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 19, 20, 21]
    assert row["mention_pairs"] == [[0, 1], [2, 3]]
    assert row["labels"] == [1, 0]
    assert row["lost_tokens"] == [0, 0]


def test_a_mention_of_a_part_of_a_token_is_the_token(processor):
    row = processor.mentions(["It had snowstorms."], [(0, 11, 15)])  # "torm"

    assert (
        words(processor, row) == "[CLS] <doc-s> it had snow <m> ##storm </m> ##s . </doc-s> [SEP]"
    )

    row = processor.mentions(["It had snowstorms."], [(0, 8, 12)])  # "nows"

    assert (
        words(processor, row) == "[CLS] <doc-s> it had <m> snow ##storm </m> ##s . </doc-s> [SEP]"
    )

    row = processor.mentions(["A storm came ."], [(0, 2, 7), (0, 2, 7)])  # the same words twice

    assert words(processor, row) == "[CLS] <doc-s> a <m> <m> storm </m> </m> came . </doc-s> [SEP]"
    assert row["mention_spans"] == [[4, 7], [5, 6]]


def test_nested_mentions_that_share_an_end(processor):
    """The outer mention opens first and closes last, whichever is named first."""
    inner = (0, 0, 3)
    outer = (0, 0, 9)
    last = (0, 4, 9)
    marked = "[CLS] <doc-s> <m> <m> the </m> <m> storm </m> </m> . </doc-s> [SEP]"
    row = processor.mentions(["The storm."], [inner, outer, last])

    assert words(processor, row) == marked
    assert row["mention_spans"] == [[4, 5], [3, 9], [7, 8]]

    row = processor.mentions(["The storm."], [last, outer, inner])

    assert words(processor, row) == marked
    assert row["mention_spans"] == [[7, 8], [3, 9], [4, 5]]


def test_rows_of_a_batch_have_the_same_entries(processor):
    rows = [processor.mentions(STORM, [(0, 4, 9), (1, 18, 24)], [(0, 1)]) for _ in range(2)]
    rows[1]["labels"] = [1]
    with pytest.raises(KeyError, match="labels"):
        processor.pad(rows)


def test_a_cut_document_keeps_its_mentions(processor):
    numbers = "one two three four five six seven eight nine ten"
    behind = processor.mentions(
        [numbers], [(0, 34, 39)], max_length=10
    )  # room for 10 - 4 - 2 = 4 tokens

    assert numbers[34:39] == "eight"
    assert words(processor, behind) == "[CLS] <doc-s> five six seven <m> eight </m> </doc-s> [SEP]"
    assert behind["mention_spans"] == [[6, 7]]
    assert behind["lost_tokens"] == [6]

    before = processor.mentions([numbers], [(0, 0, 3)], max_length=10)

    assert words(processor, before) == "[CLS] <doc-s> <m> one </m> two three four </doc-s> [SEP]"

    both = processor.mentions([numbers], [(0, 19, 23), (0, 34, 39)], max_length=12)

    assert (
        words(processor, both)
        == "[CLS] <doc-s> <m> five </m> six seven <m> eight </m> </doc-s> [SEP]"
    )

    with pytest.raises(ValueError, match=r"Mention 0 \('two', .*: 5 tokens are left"):
        # 19 - 2 - 4 - 4 = 9 tokens: 4 for the first document, 5 for the second
        processor.mentions([numbers, numbers], [(1, 4, 7), (1, 34, 39)], max_length=19)


# Questions.

PARAGRAPHS = [("Storm", ["It rained.", "The storm cut power."]), ("Tea", ["Tea was served."])]


def test_a_question_worked_by_hand(processor):
    row = processor.question("Who cut power?", PARAGRAPHS)

    assert (
        words(processor, row)
        == "[CLS] [q] who cut power ? [/q] <doc-s> <t> storm </t> <s> it rained . </s> <s> the"
        " storm cut power . </s> </doc-s> <doc-s> <t> tea </t> <s> tea was served . </s>"
        " </doc-s> [SEP]"
    )
    assert row["sentence_index"] == [11, 16, 28]
    assert row["paragraph_index"] == [8, 25]
    assert where(row["global_attention_mask"]) == [0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 25, 28]
    assert where(row["context_mask"]) == [9, 12, 13, 14, 17, 18, 19, 20, 21, 26, 29, 30, 31, 32]
    assert row["lost_tokens"] == [0, 0]
    # Texts are counted through: storm, it rained, the storm cut power, tea, tea was served.
    assert row["token_spans"][20] == (2, 14, 19)
    assert row["token_spans"][30] == (4, 4, 7)
    assert row["token_spans"][11] == (-1, -1, -1)

    texts = ["Storm", "It rained.", "The storm cut power.", "Tea", "Tea was served."]
    for token, (text, start, end) in zip(tokens(processor, row), row["token_spans"], strict=True):
        assert text == -1 or texts[text][start:end].lower() == token


def test_sentences_behind_the_cut_have_no_place(processor):
    # 15 and 9 tokens with their markers; 34 - 2 - 6 - 4 = 22 are shared as 13 and 9.
    row = processor.question("Who cut power?", PARAGRAPHS, max_length=34)

    assert (
        words(processor, row)
        == "[CLS] [q] who cut power ? [/q] <doc-s> <t> storm </t> <s> it rained . </s> <s> the"
        " storm cut </s> </doc-s> <doc-s> <t> tea </t> <s> tea was served . </s> </doc-s> [SEP]"
    )
    assert row["sentence_index"] == [11, 16, 26]
    assert row["lost_tokens"] == [2, 0]

    # 17 are shared as 9 and 8: the second sentence is gone, and so is the last token of the other
    # paragraph.
    row = processor.question("Who cut power?", PARAGRAPHS, max_length=29)

    assert (
        words(processor, row)
        == "[CLS] [q] who cut power ? [/q] <doc-s> <t> storm </t> <s> it rained . </s> </doc-s> "
        "<doc-s> <t> tea </t> <s> tea was served </s> </doc-s> [SEP]"
    )
    assert row["sentence_index"] == [11, -1, 21]
    assert row["paragraph_index"] == [8, 18]
    assert row["lost_tokens"] == [5, 1]
    assert row["token_spans"][22] == (4, 0, 3)  # numbers of texts count those behind the cut

    titles = processor.question("Who cut power?", PARAGRAPHS, max_length=18)

    assert titles["sentence_index"] == [-1, -1, -1]
    assert titles["paragraph_index"] == [8, 13]


# Tokenizers of RoBERTa's kind.


def test_sentences_are_marked_by_the_special_tokens_of_roberta(roberta):
    row = roberta.cluster(["Ab", "<s>c</doc-s>"])

    assert "".join(tokens(roberta, row)) == "<s><doc-s>Ab</doc-s><doc-s><s>c</doc-s></doc-s></s>"
    assert row["input_ids"].count(roberta.tokenizer.cls_token_id) == 1

    row = roberta.question("Q", [("T", ["A b.", "<mask>"])])
    expected = "<s> [q] Q [/q] <doc-s> <t> T </t> <s> A Ġ b . </s> <s> <mask> </s> </doc-s> </s>"

    assert words(roberta, row) == expected
    assert row["sentence_index"] == [8, 14]

    row = roberta.mentions(["It fell"], [(0, 3, 7)])

    assert words(roberta, row).endswith(" <m> f e l l </m> </doc-s> </s>")
    assert row["mention_spans"] == [[6, 10]]
    assert roberta([["Ab", "c"], ["d"]])["input_ids"][1, -1] == roberta.tokenizer.pad_token_id == 1


# Processors and models.


def test_markers_are_added_once(small_tokenizer, tmp_path):
    BertModel(BertConfig(**TINY, vocab_size=len(small_tokenizer))).save_pretrained(tmp_path)
    small_tokenizer.save_pretrained(tmp_path)
    model = CdlmForMaskedLM.from_encoder(str(tmp_path), max_length=64)
    torch.nn.init.normal_(model.get_input_embeddings().weight, mean=1.0)
    before = model.get_input_embeddings().weight.detach().clone()
    words = len(before)
    with pytest.raises(ValueError, match="does not know <doc-s>"):
        CdlmProcessor(model.tokenizer)(["Rain."])
    model.config.mask_token_id = None  # as of a Longformer
    processor = CdlmProcessor.from_model(model, 32)

    assert processor.max_length == 32
    assert len(processor.tokenizer) == model.config.vocab_size == words + 10
    assert model.config.mask_token_id == processor.tokenizer.mask_token_id

    after = model.get_input_embeddings().weight.detach().clone()

    assert torch.equal(after[:words], before)

    new = after[words:]

    assert len(new.unique(dim=0)) == 10  # drawn, every one by itself
    assert new.std(dim=1).min() > 0
    assert new.abs().max() < 0.2  # not the mean of the old rows, which is 1 here

    again = CdlmProcessor.from_model(model)

    assert (again.max_length, len(again.tokenizer)) == (64, words + 10)
    assert torch.equal(model.get_input_embeddings().weight, after)

    with pytest.raises(ValueError, match="max_length must be 1 to 64"):
        CdlmProcessor.from_model(model, 65)


def test_saved_and_loaded_it_lays_out_the_same(model, processor, tmp_path):
    model.save_pretrained(tmp_path)
    CdlmProcessor(processor.tokenizer, 33).save_pretrained(tmp_path)
    again = AutoProcessor.from_pretrained(tmp_path)

    assert type(again) is CdlmProcessor
    assert again.max_length == 33
    assert again.mentions(STORM, [(0, 4, 9)]) == processor.mentions(STORM, [(0, 4, 9)])
    assert again.question("Who [q]?", PARAGRAPHS) == processor.question("Who [q]?", PARAGRAPHS, 33)

    loaded = CdlmModel.from_pretrained(tmp_path)
    CdlmProcessor.from_model(loaded)

    assert loaded.config.vocab_size == model.config.vocab_size  # markers are there


def test_a_question_about_a_paragraph_without_sentences(toy_encoder_path):
    """An empty list of positions is one of integers, too."""
    model = CdlmForMultiHopQuestionAnswering.from_encoder(toy_encoder_path, max_length=64)
    processor = CdlmProcessor.from_model(model)
    row = processor.question("who swims?", [("the whale", [])])
    output = model(**processor.pad([row]))

    assert output.sentence_logits.shape == (1, 0)
    assert torch.isfinite(output.paragraph_logits).all()


# The parts of a layout.


@pytest.mark.parametrize(
    ("marked", "plain", "spans"),
    [
        ("Stocks <m>fell</m> on Friday.", "Stocks fell on Friday.", [(7, 11)]),
        ("<m>the <m>dog</m> and <m>cat</m></m>!", "the dog and cat!", [(0, 15), (4, 7), (12, 15)]),
        ("a < m> b", "a < m> b", []),
    ],
)
def test_marked_text_is_read(marked, plain, spans):
    assert read_marked(marked) == (plain, spans)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda processor: processor.cluster(["It rained.", "  "]), "document 1"),
        (lambda processor: processor.cluster(["one two"] * 7, 20), "7 documents"),
        (lambda processor: processor.mentions(STORM, [(1, 40, 45)]), "40 to 45"),
        (lambda processor: processor.question(" ", PARAGRAPHS), "the question"),
        (lambda processor: processor("It rained."), "list"),
        (lambda processor: read_marked("one </m> two"), "m>"),
    ],
)
def test_what_is_refused_is_named(processor, call, word):
    with pytest.raises(ValueError, match=word):
        call(processor)
