"""The first stage of pretraining: corpora of chunk vectors, to train and to evaluate on."""

import copy
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..corpus.encode import encode_corpus
from ..corpus.folder import CorpusFolder
from ..corpus.store import VectorCorpus
from ..models.chunk_encoder import LoadedChunkEncoder
from ..models.chunking import ChunkingRule
from .arguments import PretrainingArguments
from .options import CorpusArguments

logger = logging.getLogger(__name__)


class ChosenDocuments(NamedTuple):
    """Some documents of a corpus, by their positions."""

    corpus: VectorCorpus
    positions: np.ndarray


def encode_corpora(
    documents: Iterable[Any] | None,
    validation_documents: Iterable[Any] | None,
    corpus_args: CorpusArguments,
    args: PretrainingArguments,
    loaded: LoadedChunkEncoder,
    rule: ChunkingRule,
    dtype: torch.dtype,
) -> tuple[VectorCorpus, VectorCorpus | None]:
    """Encodes the documents to train on, and the documents to evaluate on, if given.

    Returns:
        Both corpora; None in place of the second corpus without documents to evaluate on.

    Raises:
        ValueError: if neither documents nor a finished corpus are given.
    """

    def encode(documents: Iterable[Any], folder: str) -> VectorCorpus:
        # A copy, because the encoder that is saved with the model keeps its precision.
        encoder = copy.deepcopy(loaded.encoder).to(args.device, dtype)
        return encode_corpus(
            documents,
            replace(loaded, encoder=encoder),
            rule,
            folder=folder,
            characters_per_part=corpus_args.characters_per_part,
            progress=args.should_log,
        )

    folder = corpus_args.corpus_dir
    if folder is None:
        # Beside the model's folder, not in it: --push_to_hub uploads what is in there.
        folder = f"{Path(args.output_dir)}-corpus"

    if documents is not None:
        corpus = encode(documents, folder)
    elif CorpusFolder(folder).stamps():
        corpus = VectorCorpus(folder)
    else:
        raise ValueError(
            "Give the documents with --train_file or --dataset_name, or a finished --corpus_dir."
        )

    logger.info("%r", corpus)
    if validation_documents is None:
        return corpus, None

    validation_corpus = encode(validation_documents, f"{folder.rstrip('/')}-validation")
    logger.info("%r", validation_corpus)
    return corpus, validation_corpus


def choose_documents(
    corpus: VectorCorpus,
    validation_corpus: VectorCorpus | None,
    share: float,
    seed: int,
    at_least: int,
) -> tuple[ChosenDocuments, ChosenDocuments]:
    """Chooses the documents to train on and those to evaluate on.

    Raises:
        ValueError: if too few documents are left.
    """
    if validation_corpus is None:
        training, held_out = share_out(corpus, share, seed, at_least=at_least)
        return ChosenDocuments(corpus, training), ChosenDocuments(corpus, held_out)

    count = len(validation_corpus)
    if count < at_least:
        raise ValueError(f"--validation_file has {count} document(s); evaluation needs {at_least}.")

    training = np.arange(len(corpus))
    held_out = np.arange(count)
    return ChosenDocuments(corpus, training), ChosenDocuments(validation_corpus, held_out)


def share_out(
    corpus: VectorCorpus, share: float, seed: int, at_least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Divides the documents of a corpus into documents to train on and documents to evaluate on.

    Args:
        corpus: all documents.
        share: share of the documents to hold out; 0 for none.
        seed: seed of the random draw.
        at_least: fewest documents to hold out if `share` is above 0.

    Returns:
        Positions of the documents to train on, and of the documents to evaluate on.

    Raises:
        ValueError: if no document is left to train on.
    """
    order = np.random.default_rng(seed).permutation(len(corpus))
    count = 0
    if share > 0:
        count = max(at_least, round(share * len(corpus)))
    if count >= len(corpus):
        raise ValueError(
            f"{corpus!r} is too small to hold out {count} document(s); set --validation_share 0."
        )
    return np.sort(order[count:]), np.sort(order[:count])
