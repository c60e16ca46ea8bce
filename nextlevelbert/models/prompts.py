"""Prompts: texts that an encoder was trained to read before other texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from .chunking import ChunkingRule
from .sentences import Splitter
from .tokenizing import TokenizedDocument, example_text, private_tokenizer, tokenize_document

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SplitDocument = tuple[TokenizedDocument, np.ndarray]  # tokens, and boundaries of chunks
# sentence-transformers has these prompts in every model, empty if the model does not say more.
_USUAL_PROMPTS = {"query": "", "document": ""}
# Names of the prompt of documents; the first that has a text is used.
_PASSAGE_NAMES = ("document", "passage", "corpus")


@dataclass(frozen=True)
class Prompts:
    """Holds the prompts of an encoder: texts that it was trained to read before other texts.

    Attributes:
        texts: text of each prompt, by name.
        default_name: name of the prompt of texts for which no other is chosen; None for no prompt.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    default_name: str | None = None

    def text(self, name: str | None = None, prompt: str | None = None) -> str:
        """Returns the text of a prompt, chosen as in sentence-transformers.

        Args:
            name: name of the prompt (default: `default_name`).
            prompt: the text itself, which is used whatever the name is.

        Raises:
            ValueError: there is no prompt of that name.
        """
        if prompt is not None:
            return prompt
        if name is None:
            name = self.default_name
        if name is None:
            return ""

        texts = {**_USUAL_PROMPTS, **self.texts}
        if name not in texts:
            raise ValueError(f"There is no prompt {name!r}. The names are {', '.join(texts)}.")

        return texts[name]

    @property
    def query(self) -> str:
        """Returns the prompt of questions, ``"query"``; empty without one.

        As in sentence-transformers, the default prompt is not for questions.
        """
        return self.texts.get("query", "")

    @property
    def passage(self) -> str:
        """Returns the prompt of documents: ``"document"``, ``"passage"``, … or the default one."""
        for name in _PASSAGE_NAMES:
            if self.texts.get(name):
                return self.texts[name]
        return self.text()


def check_prompt(prompt: str) -> None:
    """Checks that a prompt does not run into the text behind it.

    Raises:
        ValueError: the prompt ends in a word.
    """
    if prompt[-1:].isalnum():
        raise ValueError(
            f"The prompt {prompt!r} would run into the first word of a text. End it with a space."
        )


def with_prompt(
    rule: ChunkingRule,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    include_prompt: bool = True,
) -> ChunkingRule:
    """Returns the rule for chunks that begin with a prompt.

    Args:
        rule: the rule, whose own prompt is replaced.
        tokenizer: tokenizer of the chunk encoder.
        prompt: text of the prompt; without text, chunks have no prompt.
        include_prompt: if false, pooling leaves out the prompt and all tokens before it, as
            sentence-transformers' `Pooling` does.

    Raises:
        ValueError: the prompt ends in a word, or fills a chunk.
    """
    if prompt == "":
        return replace(rule, prompt="", prompt_ids=(), unpooled=0)

    check_prompt(prompt)
    # Some tokenizers make the space behind a prompt a part of the next token: the ids of the prompt
    # end before the space.
    example = example_text(tokenizer)
    if not prompt[-1:].isspace():
        example = f" {example}"

    tokens = tokenize_document(tokenizer, f"{prompt}{example}")
    prompt_ids = tokens.input_ids[tokens.char_ends <= len(prompt.rstrip(" "))].tolist()
    unpooled = 0
    if not include_prompt:
        # sentence-transformers counts the tokens of the prompt alone, but for the last special one.
        alone = len(tokenize_document(tokenizer, prompt))
        unpooled = len(rule.prefix_ids) + alone + max(len(rule.suffix_ids) - 1, 0)

    return replace(rule, prompt=prompt, prompt_ids=tuple(prompt_ids), unpooled=unpooled)


def tokenize_documents(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], rule: ChunkingRule
) -> list[TokenizedDocument]:
    """Tokenises whole documents together, as they are tokenised behind the prompt of a rule.

    One call for many documents is faster than a call for each: the tokenizer's threads share them.
    The first token of a text can depend on the prompt, because some tokenizers make the space
    before a word a part of the word's token.

    Args:
        tokenizer: a fast tokenizer, of which a private copy is used.
        texts: texts of any length.
        rule: the rule, with a prompt or without.

    Returns:
        The tokens of each document, without the prompt's.

    Raises:
        TypeError: the tokenizer does not return the characters of tokens.
    """
    tokenize = private_tokenizer(tokenizer)
    if not rule.prompt_ids:
        return tokenize(texts)

    documents = []
    for text, behind_prompt in zip(
        texts, tokenize([f"{rule.prompt}{text}" for text in texts]), strict=True
    ):
        document = _without_prompt(behind_prompt, rule)
        if document is None:
            [document] = tokenize([text])
        documents.append(document)

    return documents


def tokenize_and_split(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    rule: ChunkingRule,
    splitter: Splitter | None,
) -> list[SplitDocument]:
    """Tokenises documents, and splits each into chunks.

    Args:
        tokenizer: a fast tokenizer.
        texts: the documents.
        rule: chunking rule.
        splitter: function that finds sentences in place of the rule.
    """
    documents = tokenize_documents(tokenizer, texts, rule)
    boundaries = []
    for text, document in zip(texts, documents, strict=True):
        boundaries.append(rule.text_boundaries(text, document, splitter))
    return list(zip(documents, boundaries, strict=True))


def _without_prompt(tokens: TokenizedDocument, rule: ChunkingRule) -> TokenizedDocument | None:
    """Removes the tokens of a prompt; returns None if the prompt and the text share a token."""
    count = len(rule.prompt_ids)
    if tuple(tokens.input_ids[:count].tolist()) != rule.prompt_ids:
        return None  # the prompt's last mark and the text's first word are one token

    size = len(rule.prompt)
    if tokens.char_ends[-1] <= size:
        count = len(tokens)  # only the space behind the prompt is left

    return TokenizedDocument(
        input_ids=tokens.input_ids[count:],
        char_starts=np.maximum(tokens.char_starts[count:] - size, 0),
        char_ends=np.maximum(tokens.char_ends[count:] - size, 0),
    )


def split_prompt(
    input_ids: np.ndarray, rules: Sequence[ChunkingRule]
) -> tuple[ChunkingRule, np.ndarray]:
    """Finds the prompt that the ids of a document begin with.

    Args:
        input_ids: token ids ``[T]``, without special tokens.
        rules: a rule for each prompt, and the rule for ids without a prompt at the end.

    Returns:
        The rule of the document's prompt, and the ids without the prompt.
    """
    for rule in rules[:-1]:
        count = len(rule.prompt_ids)
        if count > 0 and tuple(input_ids[:count].tolist()) == rule.prompt_ids:
            return rule, input_ids[count:]
    return rules[-1], input_ids
