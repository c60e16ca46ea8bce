"""Whole documents by their text: vectors, spans and costs, for any number of documents."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from tqdm.auto import tqdm

from .backbones import evaluation_mode
from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder, chunk_bar, encode_documents
from .chunking import ChunkingRule, chunk_spans, count_windows
from .configuration_nextlevelbert import sentence_steps
from .encoder_slot import EncoderSlotMixin
from .prompts import SplitDocument, tokenize_and_split, with_prompt
from .sentences import Splitter
from .tokenizing import default_threads, groups_by_length, iter_texts, prepare_ahead


@dataclass(frozen=True)
class DocumentEmbedding:
    """Holds the encoding of one document of n chunks, as float32 tensors on the CPU.

    Attributes:
        document: the vector of the document, ``[H]``.
        chunks: contextual chunk vectors, ``[n, H]`` (under truncation the first `max_chunks`).
        plain: chunk vectors as the chunk encoder made them, ``[n, D]``. To search them, compare
            the model's `search_vectors` of them with its `encode_query` of a question.
        spans: characters of each chunk, ``[n, 2]`` int64: ``text[start:end]``.
    """

    document: Tensor
    chunks: Tensor
    plain: Tensor
    spans: np.ndarray

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={list(values.shape)}" for name, values in vars(self).items())
        return f"DocumentEmbedding({shapes})"

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise TypeError("A DocumentEmbedding is no array. Give its .document, .chunks or .plain.")


@dataclass(frozen=True)
class DocumentPlan:
    """Counts what encoding one document costs.

    Attributes:
        tokens: tokens of the document, without special tokens.
        chunks: chunks that the chunk encoder has to encode.
        windows: passes of the layers over chunks; more than one if the document has more than
            `max_chunks` chunks.
    """

    tokens: int
    chunks: int
    windows: int


class DocumentEncodingMixin(EncoderSlotMixin):
    """Adds `encode`, `iter_encode` and `plan` to a model over chunk vectors."""

    def prompted_rule(self, prompt: str) -> ChunkingRule:
        """Returns the rule that splits documents into chunks that begin with a prompt.

        Args:
            prompt: text of the prompt; without text, chunks have no prompt.
        """
        rule = self.config.chunking_rule()
        if prompt == "":
            return rule
        steps = sentence_steps(self.config.chunk_encoder_config)
        include_prompt = steps.get("include_prompt", True)
        return with_prompt(rule, self.tokenizer, prompt, include_prompt=include_prompt)

    @overload
    def encode(  # type: ignore[overload-overlap]  # a text is an iterable, too
        self,
        texts: str,
        tokens_per_batch: int | None = None,
        show_progress_bar: bool = False,
        chunk_encoder: LoadedChunkEncoder | None = None,
        splitter: Splitter | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> DocumentEmbedding: ...

    @overload
    def encode(
        self,
        texts: Iterable[Any],
        tokens_per_batch: int | None = None,
        show_progress_bar: bool = False,
        chunk_encoder: LoadedChunkEncoder | None = None,
        splitter: Splitter | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> list[DocumentEmbedding]: ...

    def encode(
        self,
        texts: str | Iterable[Any],
        tokens_per_batch: int | None = None,
        show_progress_bar: bool = False,
        chunk_encoder: LoadedChunkEncoder | None = None,
        splitter: Splitter | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> DocumentEmbedding | list[DocumentEmbedding]:
        """Encodes documents: their vectors, their chunks' contextual and plain vectors, and spans.

        Args:
            texts: a document of any length, as a text, or several documents in a list, generator,
                pandas Series or `datasets.Dataset`. Each of several may be a text, an (id, text)
                pair, a dict with a ``text``, or a `Document`.
            tokens_per_batch: most token positions in one forward pass of the chunk encoder.
            show_progress_bar: if true, shows a bar that counts chunks, if stderr is a terminal.
            chunk_encoder: the encoder that the model was made with; needed only if the model does
                not hold its chunk encoder.
            splitter: function that finds the sentences of a text in place of the model's rule. It
                returns the (start, end) of each sentence, like `text_sentences`, or the sentences
                themselves. Only for chunks made of sentences.
            prompt_name: name of a prompt in `config.prompts`, such as ``"query"``. Every chunk
                begins with the prompt (default: `config.default_prompt_name`, if there is one).
            prompt: text of a prompt, in place of `prompt_name`.

        Returns:
            One embedding for a text; a list for several documents.

        Raises:
            ValueError: `chunk_encoder` is not the encoder that the model was made with, or there is
                no prompt of that name.
        """
        embeddings = list(
            self.iter_encode(
                texts,
                tokens_per_batch=tokens_per_batch,
                show_progress_bar=show_progress_bar,
                chunk_encoder=chunk_encoder,
                splitter=splitter,
                prompt_name=prompt_name,
                prompt=prompt,
            )
        )
        if isinstance(texts, str):
            return embeddings[0]
        return embeddings

    def iter_encode(
        self,
        texts: str | Iterable[Any],
        tokens_per_batch: int | None = None,
        show_progress_bar: bool = False,
        chunk_encoder: LoadedChunkEncoder | None = None,
        splitter: Splitter | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> Iterator[DocumentEmbedding]:
        """Encodes documents one after the other, even if they do not fit into memory together.

        The arguments are those of `encode`.

        Yields:
            The embedding of each document, in order.
        """
        rule = self.prompted_rule(self.config.encoder_prompts().text(prompt_name, prompt))
        if chunk_encoder is None:
            encoder = self.get_chunk_encoder()
        else:
            self.check_chunk_encoder(chunk_encoder)
            encoder = chunk_encoder.encoder

        prepare = partial(tokenize_and_split, self.tokenizer, rule=rule, splitter=splitter)
        threads = default_threads()
        if splitter is not None:
            threads = 1  # the function may not be made for several

        # Short documents of a group share micro-batches.
        groups = prepare_ahead(prepare, groups_by_length(iter_texts(texts)), threads=threads)

        cores: Callable[[], AbstractContextManager[object]] = nullcontext
        if self.config.num_hidden_layers == 0:
            cores = encoder.cores_beside(threads)

        empty = []
        documents = 0
        with chunk_bar("encoding", is_shown=show_progress_bar) as bar:
            for group in groups:
                with cores():
                    embeddings = self._encode_group(group, encoder, rule, tokens_per_batch, bar=bar)
                yield from embeddings
                for index, (document, _) in enumerate(group, start=documents):
                    if len(document) == 0:
                        empty.append(index)
                documents += len(group)

        if empty:
            warn_of_empty_documents(empty)

    def encode_query(self, queries: str | Iterable[str]) -> Tensor:
        """Encodes questions as vectors to compare with the `search_vectors` of chunks.

        A question gets the query prompt of the chunk encoder, if there is one; encode documents
        with its passage prompt (``encode(text, prompt_name="passage")``). The vector is the mean of
        the question's chunk vectors (of most questions, there is one), prepared by
        `search_vectors`.

        Args:
            queries: a question, or several.

        Returns:
            The vector ``[D]`` of a question, or vectors ``[Q, D]`` of several, in float32 on the
            CPU. The inner product with a chunk's search vector is their cosine.

        Raises:
            ValueError: a question holds no token.
        """
        if isinstance(queries, str):
            texts = [queries]
        else:
            texts = list(queries)

        vectors = torch.zeros(len(texts), self.config.chunk_hidden_size)
        prompt = self.config.encoder_prompts().query
        for index, embedding in enumerate(self.iter_encode(texts, prompt=prompt)):
            if len(embedding.plain) == 0:
                raise ValueError(f"The question {texts[index]!r} holds no token.")
            mean = embedding.plain.mean(dim=0)
            vectors[index] = self.search_vectors(mean)

        if isinstance(queries, str):
            return vectors[0]

        return vectors

    @torch.no_grad()
    def search_vectors(self, plain: Tensor) -> Tensor:
        """Prepares plain chunk vectors to be searched, as `nextlevelbert search` compares them.

        They are whitened if the model whitens chunk vectors, and get the length 1. Whitening
        removes what all chunks have in common, so that cosines tell chunks apart: on the questions
        of SQuALITY, nextlevelbert-static reaches an MRR of 0.770 with whitened and of 0.474 with
        plain vectors.

        Args:
            plain: chunk vectors as the chunk encoder makes them, ``[..., D]``: `plain` of an
                embedding from `encode`, or of a document in a `VectorCorpus`.

        Returns:
            The vectors ``[..., D]``, in float32 on the CPU. Compare them by their inner product
            with the vector of a question from `encode_query`.
        """
        prepared = self.prepare_chunks(plain.to(self.device, self.dtype))
        return normalize(prepared.float().cpu(), dim=-1)

    @torch.no_grad()
    def _encode_group(
        self,
        group: list[SplitDocument],
        encoder: ChunkEncoder,
        rule: ChunkingRule,
        tokens_per_batch: int | None,
        bar: tqdm,
    ) -> list[DocumentEmbedding]:
        """Encodes tokenised documents with their chunk boundaries together."""
        ids = [document.input_ids for document, _ in group]
        group_boundaries = [boundaries for _, boundaries in group]
        bar.total += sum(len(boundaries) - 1 for boundaries in group_boundaries)
        with evaluation_mode(self):
            plain = encode_documents(
                encoder,
                ids,
                group_boundaries,
                rule=rule,
                tokens_per_batch=tokens_per_batch,
                bar=bar,
            )
            contextual, pooled = self.contextualize(plain)

        # One copy from the device for each kind of vector, not one for each document. The clones
        # keep a document that is stored from storing its whole group.
        read = [len(chunks) for chunks in contextual]
        pooled = pooled.float().cpu()
        contextual = torch.cat(contextual).float().cpu().split(read)
        plain = torch.cat(plain).float().cpu().split([len(chunks) for chunks in plain])
        embeddings = []
        for index, (document, boundaries) in enumerate(group):
            embedding = DocumentEmbedding(
                document=pooled[index].clone(),
                chunks=contextual[index].clone(),
                plain=plain[index].clone(),
                spans=chunk_spans(document, boundaries),
            )
            embeddings.append(embedding)

        return embeddings

    @overload
    def plan(  # type: ignore[overload-overlap]  # a text is an iterable, too
        self,
        texts: str,
        splitter: Splitter | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> DocumentPlan: ...

    @overload
    def plan(
        self,
        texts: Iterable[Any],
        splitter: Splitter | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> list[DocumentPlan]: ...

    def plan(
        self,
        texts: str | Iterable[Any],
        splitter: Splitter | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> DocumentPlan | list[DocumentPlan]:
        """Counts tokens, chunks and windows without running the model.

        The arguments are those of `encode`.

        Returns:
            One plan for a text; a list for several documents.
        """
        size, overlap = self.config.window()
        rule = self.prompted_rule(self.config.encoder_prompts().text(prompt_name, prompt))
        plans = []
        for group in groups_by_length(iter_texts(texts)):
            for document, boundaries in tokenize_and_split(self.tokenizer, group, rule, splitter):
                chunks = len(boundaries) - 1
                windows = count_windows(chunks, size=size, overlap=overlap)
                plans.append(DocumentPlan(tokens=len(document), chunks=chunks, windows=windows))

        if isinstance(texts, str):
            return plans[0]

        return plans


def warn_of_empty_documents(indices: Sequence[int]) -> None:
    """Warns of documents without tokens, whose vector is zero.

    Args:
        indices: positions of the empty documents among all documents.
    """
    names = ", ".join(map(str, indices))
    warnings.warn(
        f"Document(s) {names} contain no token (empty or blank text): their vector is zero.",
        stacklevel=4,
    )
