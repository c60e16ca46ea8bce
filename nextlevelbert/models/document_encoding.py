"""From text to chunk vectors, and on to document vectors: `encode`, `plan`, and the frozen chunk encoder they use."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from tqdm.auto import tqdm
from transformers import AutoModel

from .chunk_encoder import ChunkEncoder, same_fingerprint, sentence_steps
from .chunking import Splitter, TokenizedDocument, check_texts, chunk_spans, flatten_chunks, tokenize_document
from .encoder_loading import LoadedChunkEncoder, load_chunk_encoder
from .hybrid_encoder import OWN_KINDS, HybridChunkEncoder, HybridConfig
from .outputs import BeyondFirstWindow, DocumentEmbedding, DocumentPlan
from .pretrained import NextLevelPreTrainedModel, token_mask
from .vector_cache import CachedEncoder, VectorCache, opened

# Chunk encoders that `AutoModel` does not know. By name: a checkpoint's own code may have been imported twice.
_NOT_OF_TRANSFORMERS = tuple(kind.model_type for kind in OWN_KINDS)

# Documents are encoded together until they have this many chunks, so that short ones share micro-batches.
_CHUNKS_PER_GROUP = 4_096


class DocumentEncodingModel(NextLevelPreTrainedModel):
    """A model with a frozen chunk encoder, `encode(texts)` and `plan(texts)`; the subclass has `contextualize`."""

    chunk_encoder: ChunkEncoder | None  # None where the checkpoint does not hold it
    # In a tuple, so that it is no submodule: it is never saved and never trained.
    _borrowed_chunk_encoder: tuple[ChunkEncoder] | None = None
    _copied_chunk_encoder: tuple[tuple[object, ...], ChunkEncoder] | None = None

    def build_chunk_encoder(self) -> None:
        """Makes room for the chunk encoder where the checkpoint holds it; for a subclass's `__init__`."""
        self.chunk_encoder = self._new_chunk_encoder() if self.config.include_chunk_encoder else None

    def _new_chunk_encoder(self) -> ChunkEncoder:
        config = self.config
        hybrid = config.chunk_encoder_config.model_type == HybridConfig.model_type
        kind = HybridChunkEncoder if hybrid else ChunkEncoder
        return kind(config.chunk_encoder_config, config.chunk_encoder_pooling, config.chunk_encoder_normalize)

    def check_chunk_encoder(self, source: LoadedChunkEncoder) -> None:
        """Raises a ValueError for a chunk encoder with other weights than the model was trained with."""
        self._check_fingerprint(source.fingerprint, source.name)

    def attach_chunk_encoder(self, source: LoadedChunkEncoder) -> None:
        """Makes a chunk encoder part of the model, so that it is saved with it.

        Raises:
            ValueError: if its weights are not those that the model was trained with.
        """
        self.check_chunk_encoder(source)
        if self.chunk_encoder is None:
            self.chunk_encoder = self._new_chunk_encoder().to(self.device, self.dtype)
        self.chunk_encoder.load_state_dict(source.encoder.state_dict())
        self.config.include_chunk_encoder = True
        self.tokenizer = source.tokenizer

    def detach_chunk_encoder(self) -> LoadedChunkEncoder:
        """Takes the frozen encoder out, so that the checkpoints of a training run do not each hold a copy.

        `attach_chunk_encoder` puts it back; until then, text is encoded by `config.chunk_encoder_name`.
        """
        encoder = self.get_chunk_encoder()
        name = self.config.chunk_encoder_name or "the model's own chunk encoder"
        fingerprint = self.config.chunk_encoder_fingerprint or encoder.fingerprint()
        source = LoadedChunkEncoder(encoder, self.tokenizer, name, fingerprint)
        self.chunk_encoder = None
        self.config.include_chunk_encoder = False
        return source

    def named_chunk_encoder(self) -> str | None:
        """The name under which the checkpoint finds its chunk encoder on the Hub.

        Raises:
            ValueError: if that is a folder of this machine, or nothing says what its weights must be: then the
                checkpoint could be given any encoder in silence.
        """
        name, known = self.config.chunk_encoder_name, self.config.chunk_encoder_fingerprint
        if known and not (name and Path(name).exists()):
            return name
        what = f"names {name!r}, a path on this machine" if known else "has no chunk_encoder_fingerprint to know it by"
        raise ValueError(
            f"This checkpoint holds no chunk encoder and {what}. Say which encoder made its vectors: "
            "model.attach_chunk_encoder(load_chunk_encoder(path)), model.encode(texts, "
            "chunk_encoder=load_chunk_encoder(path)), or --chunk_encoder FOLDER."
        )

    def get_chunk_encoder(self) -> ChunkEncoder:
        """The frozen encoder; loaded from `config.chunk_encoder_name` if the checkpoint does not hold it."""
        if self.chunk_encoder is not None:
            return self.chunk_encoder
        if self._borrowed_chunk_encoder is None:
            name = self.named_chunk_encoder()
            encoder = self._load_named(name)
            self._check_fingerprint(encoder.fingerprint(), name)
            self._borrowed_chunk_encoder = (encoder,)
        return self._borrowed_chunk_encoder[0].to(self.device, self.dtype)

    def _load_named(self, name: str | None) -> ChunkEncoder:
        """The chunk encoder of that name, in float32: hashed in its own dtype, not in the model's."""
        try:
            ours = self.config.chunk_encoder_config
            if ours.model_type in _NOT_OF_TRANSFORMERS or sentence_steps(ours):
                return load_chunk_encoder(str(name)).encoder
            source = AutoModel.from_pretrained(name, dtype=torch.float32, trust_remote_code=False)
        except (OSError, ValueError, TypeError, SafetensorError) as error:
            raise ValueError(
                f"This checkpoint holds no chunk encoder, and {name!r}, which made its vectors, cannot be loaded. "
                "Give inputs_embeds, or call model.attach_chunk_encoder(load_chunk_encoder(path))."
            ) from error
        encoder, weights = self._new_chunk_encoder().float(), source.state_dict()
        encoder.model.load_state_dict({key: weights[key] for key in encoder.model.state_dict()})
        return encoder

    def _prepared_chunk_encoder(
        self, other: LoadedChunkEncoder | None, dtype: torch.dtype | str | None, compile: bool
    ) -> ChunkEncoder:
        """The chunk encoder, or a copy in another dtype or compiled, which is kept for the next call."""
        if other is not None:
            self._check_fingerprint(other.fingerprint, other.name)
            theirs = (other.encoder.pooling, other.encoder.normalize)
            if theirs != (ours := (self.config.chunk_encoder_pooling, self.config.chunk_encoder_normalize)):
                raise ValueError(
                    f"chunk_encoder has pooling and normalize {theirs}, but the model was made with {ours}; give the "
                    f"encoder that made its vectors ({self.config.chunk_encoder_name!r})."
                )
        encoder = self.get_chunk_encoder() if other is None else other.encoder
        if not compile and (dtype is None or str(dtype).removeprefix("torch.") == encoder.precision):
            return encoder
        state = (encoder.identity(), encoder.device, str(dtype), compile)
        if self._copied_chunk_encoder is None or self._copied_chunk_encoder[0] != state:
            prepared = encoder.prepared(dtype, encoder.device, compile)
            if prepared is encoder:
                return encoder
            self._copied_chunk_encoder = (state, prepared)
        return self._copied_chunk_encoder[1]

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_copied_chunk_encoder": None}  # not for pickles and copies of the model

    def _check_fingerprint(self, fingerprint: str, name: str | None) -> None:
        config = self.config
        expected, steps = (
            config.chunk_encoder_fingerprint,
            (config.chunk_encoder_pooling, config.chunk_encoder_normalize),
        )
        if expected and not same_fingerprint(fingerprint, expected, *steps):
            raise ValueError(
                f"chunk_encoder_fingerprint: the model was made with the encoder {expected[:12]}…, but {name!r} is "
                f"{fingerprint[:12]}…; give the encoder that made its vectors ({self.config.chunk_encoder_name!r})."
            )

    def encode(
        self,
        texts: str | Iterable[str],
        tokens_per_batch: int | None = None,
        show_progress_bar: bool = False,
        dtype: torch.dtype | str | None = None,
        compile: bool = False,
        cache_dir: str | Path | VectorCache | None = None,
        chunk_encoder: LoadedChunkEncoder | None = None,
        splitter: Splitter | None = None,
    ) -> DocumentEmbedding | list[DocumentEmbedding]:
        """Document vector, contextual and plain chunk vectors and their characters, in one pass.

        Documents may have any length. Beside the results, memory holds one micro-batch.

        Args:
            texts: a document; or several, in a list, a generator, a pandas Series, a NumPy array, or the like.
            tokens_per_batch: token positions of one forward pass of the chunk encoder.
            show_progress_bar: show a bar that counts chunks.
            dtype: the dtype that the chunk encoder computes in, instead of its own. bfloat16 is about twice as fast
                on processors that support it. The pass over chunk vectors stays in the model's dtype: it takes
                about one per cent of the time, and in bfloat16 it would double the error.
            compile: run the chunk encoder through `torch.compile` (up to a minute on the first call).
            cache_dir: a folder (or an open `VectorCache`) that keeps the vectors of chunks: text that any model with
                this chunk encoder has seen before is not encoded again.
            chunk_encoder: another form of the model's own chunk encoder, such as one in int8 (see
                `quantize_chunk_encoder`).
            splitter: a function that finds the sentences instead of the model's rule, for example `text_sentences`:
                from a text to (start, end) of each, or to their texts. For chunks made of sentences, and for text
                only: token ids given to the model are always cut by its rule.

        Returns:
            One `DocumentEmbedding` for a single text, otherwise a list of them; empty if there is no text.

        Raises:
            TypeError, ValueError: for something that is not text (named), or a `chunk_encoder` with other weights,
                pooling or normalisation than the model's, or a splitter that loses the order of the text.
        """
        documents = check_texts(texts)
        if self.config.long_documents == "error":  # before any computation
            self.config.check_lengths([self._plan_document(text, splitter).chunks for text in documents])
        training = self.training
        self.eval()
        try:
            with (
                tqdm(total=0, unit="chunk", desc="encoding", disable=not show_progress_bar) as bar,
                nullcontext() if cache_dir is None else opened(cache_dir) as cache,
            ):
                prepared = self._prepared_chunk_encoder(chunk_encoder, dtype, compile)
                encoder = prepared if cache is None else CachedEncoder(prepared, cache)
                found: list[DocumentEmbedding] = []
                for group in self._groups(documents, splitter):
                    found += self._encode_group(group, len(found), encoder, tokens_per_batch, bar)
        finally:
            self.train(training)
        empty = [index for index, embedding in enumerate(found) if len(embedding.plain) == 0]
        if empty:
            warn_of_empty_documents(empty)
        return found[0] if isinstance(texts, str) else found

    def _groups(
        self, texts: list[str], splitter: Splitter | None
    ) -> Iterator[list[tuple[TokenizedDocument, np.ndarray]]]:
        """Tokenised documents with their chunk boundaries, in groups of about equally many chunks."""
        rule, group, waiting = self.config.chunking_rule(), [], 0
        for text in texts:
            document = tokenize_document(self.tokenizer, text)
            group.append((document, rule.text_boundaries(text, document, splitter)))
            waiting += len(group[-1][1]) - 1
            if waiting >= _CHUNKS_PER_GROUP:
                yield group
                group, waiting = [], 0
        if group:
            yield group

    @torch.no_grad()
    def _encode_group(
        self,
        group: list[tuple[TokenizedDocument, np.ndarray]],
        first: int,
        encoder: ChunkEncoder | CachedEncoder,
        tokens_per_batch: int | None,
        bar: tqdm,
    ) -> list[DocumentEmbedding]:
        documents, boundaries = zip(*group, strict=True)
        ids, flat, offsets = flatten_chunks([document.input_ids for document in documents], boundaries)
        bar.total += int(offsets[-1])
        plain = encoder.encode(ids, flat, self.config.chunking_rule(), tokens_per_batch, bar)
        vectors = [plain[start:end] for start, end in itertools.pairwise(offsets)]
        contextual, pooled = self.contextualize(vectors, first=first)
        return [
            DocumentEmbedding(
                document=pooled[number].float().cpu(),
                chunks=contextual[number].float().cpu(),
                plain=vectors[number].float().cpu(),
                spans=chunk_spans(document, boundaries[number]),
            )
            for number, document in enumerate(documents)
        ]

    def encode_ids(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Token ids ``[B, T]`` of whole documents to their chunk vectors, each ``[n, D]``."""
        mask = token_mask(input_ids, attention_mask)
        if input_ids.numel():
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        rule = self.config.chunking_rule()
        rows = zip(input_ids.cpu(), mask.cpu(), strict=True)
        ids = [rule.strip_special_tokens(row[real].numpy().astype(np.int32)) for row, real in rows]
        flat_ids, boundaries, offsets = flatten_chunks(ids, [rule.boundaries(document) for document in ids])
        vectors = self.get_chunk_encoder().encode(flat_ids, boundaries, rule).to(self.dtype)  # [N, D]
        return list(vectors.split(np.diff(offsets).tolist()))

    def encode_pairs(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None = None,
        embeds: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        """Vectors of the short texts that go with documents: questions ``[N]`` or candidates ``[N, C]``.

        Args:
            input_ids: ``[N, Q]`` or ``[N, C, Q]`` token ids; each text becomes one chunk; a longer one becomes
                several, and the mean of their vectors is taken.
            attention_mask: of the same shape; zero at padding.
            embeds: the vectors, if they are already encoded.

        Returns:
            ``[N, D]`` or ``[N, C, D]``; None if nothing was given.

        Raises:
            ValueError: for both, vectors of another size or with NaN or infinity, or a text without tokens (numbered).
        """
        if embeds is not None:
            if input_ids is not None or embeds.ndim not in (2, 3) or embeds.shape[-1] != self.config.chunk_hidden_size:
                raise ValueError(
                    f"Give either pair_input_ids or pair_embeds [N, {self.config.chunk_hidden_size}] or "
                    f"[N, C, {self.config.chunk_hidden_size}]; got pair_embeds {tuple(embeds.shape)}"
                    f"{' and pair_input_ids' if input_ids is not None else ''}."
                )
            return embeds.to(self.device, self.dtype)
        if input_ids is None:
            return None
        flat = input_ids.reshape(-1, input_ids.shape[-1])  # [N * C, Q]
        mask = None if attention_mask is None else attention_mask.reshape(flat.shape)
        vectors = self.encode_ids(flat, mask)
        if blank := [number for number, chunks in enumerate(vectors) if len(chunks) == 0]:
            raise ValueError(f"pair_input_ids: texts {blank} contain no token; give each question a text.")
        means = torch.stack([chunks.mean(dim=0) for chunks in vectors])  # [N * C, D]
        return means.reshape(*input_ids.shape[:-1], -1)

    def plan(self, texts: str | Iterable[str], splitter: Splitter | None = None) -> DocumentPlan | list[DocumentPlan]:
        """Counts tokens, chunks and windows, and what is beyond the first one, without running any network.

        Args:
            texts, splitter: as in `encode`.
        """
        found = [self._plan_document(text, splitter) for text in check_texts(texts)]
        return found[0] if isinstance(texts, str) else found

    def _plan_document(self, text: str, splitter: Splitter | None) -> DocumentPlan:
        document = tokenize_document(self.tokenizer, text)
        boundaries = self.config.chunking_rule().text_boundaries(text, document, splitter)
        chunks, (limit, _) = len(boundaries) - 1, self.config.window()
        rest = len(document) - int(boundaries[limit]) if chunks > limit else 0  # tokens
        return DocumentPlan(
            tokens=len(document),
            chunks=chunks,
            windows=len(self.config.windows_of(chunks)),
            beyond_first_window=BeyondFirstWindow(
                chunks=max(chunks - limit, 0),
                tokens=rest,
                characters=int(document.char_ends[-1] - document.char_starts[-rest]) if rest else 0,
            ),
        )


def warn_of_empty_documents(indices: Sequence[int]) -> None:
    """Warns of documents without tokens, whose vector is zero."""
    warnings.warn(
        f"Document(s) {', '.join(str(index) for index in indices)} contain no token (empty or blank text): "
        "their document vector is zero.",
        stacklevel=3,
    )
