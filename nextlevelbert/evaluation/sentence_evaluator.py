"""Document retrieval as an evaluator of sentence-transformers, for its trainer and for any `SentenceTransformer`."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from .chunk_scores import chunk_similarity
from .retrieval import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from .runs import ndcg, run_by_scores, run_documents

logger = logging.getLogger(__name__)


class LongDocumentRetrievalEvaluator(SentenceEvaluator):
    """Finds documents by the cosine of a model's vectors, and scores whole rankings (see `retrieval_scores`).

    Unlike `InformationRetrievalEvaluator` it ranks the whole pool, knows grades, never counts a document as the
    answer to itself, and counts ties against the model. Texts are handed to the model as they are; a model
    that cuts them at its `max_seq_length` is named in a warning.

    Args:
        task: queries, documents and relevance. `task.name` stands before every metric and in the file's name.
        k: where ``mrr@k``, ``hit_rate@k``, ``recall@k`` and ``ndcg@k`` cut the ranking.
        batch_size: texts in a batch of `model.encode`.
        show_progress_bar: of `model.encode`.
        write_csv: whether to add a line to a ``.csv`` where an `output_path` is given.
        score: by the cosine of the model's vectors, or by its contextual chunk vectors: ``"chunks"`` is the mean of
            the `top_chunks` nearest pairs, ``"maxsim"`` the mean over the query's chunks of the nearest one (see
            `chunk_similarity`), ``"both"`` the sum of ``"chunks"`` and the cosine. By chunks the model has to be a
            NextLevelBERT or HATE with its own chunk encoder.
        top_chunks: pairs of chunks that count.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> task = RetrievalTask("sea", {"q": "the sea"}, {"a": "the sea", "b": "A ball at Bath."}, {"q": {"a": 1}})
        >>> evaluator = LongDocumentRetrievalEvaluator(task)
        >>> evaluator(SentenceTransformer(minilm, device="cpu"))[evaluator.primary_metric]
        1.0
    """

    def __init__(
        self,
        task: RetrievalTask,
        k: int = 10,
        batch_size: int = 8,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        score: Literal["document", "chunks", "maxsim", "both"] = "document",
        top_chunks: int = 3,
    ) -> None:
        super().__init__()
        if score not in ("document", "chunks", "maxsim", "both"):
            raise ValueError(f"score must be document, chunks, maxsim or both, got {score!r}.")
        self.score, self.top_chunks = score, top_chunks
        self.task, self.k, self.batch_size = task, k, batch_size
        self.show_progress_bar, self.write_csv = show_progress_bar, write_csv
        self.name = task.name
        self.primary_metric = f"{task.name}_mrr"
        self.csv_file = f"Long-Document-Retrieval_evaluation_{task.name}@{k}_results.csv"

    def __call__(
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Encodes queries and documents with `encode_query` and `encode_document`, and ranks.

        Args:
            model: to evaluate.
            output_path: folder for the ``.csv``.
            epoch, steps: where in training this is; -1 outside of it.

        Returns:
            The scores, each under ``<task>_<score>``.
        """
        if self.score == "document":
            self._warn_of_cuts(model)
            arguments: dict[str, Any] = {
                "batch_size": self.batch_size,
                "show_progress_bar": self.show_progress_bar,
                "convert_to_tensor": True,
            }
            queries = model.encode_query(list(self.task.queries.values()), **arguments)  # [Q, D]
            documents = model.encode_document(list(self.task.documents.values()), **arguments)  # [N, D]
            ranks = rank_documents(self.task, queries, documents)
            run = run_documents(self.task, queries, documents, self.k)
        else:
            similarity = self._by_chunks(model)
            ranks = rank_by_scores(self.task, similarity)
            run = run_by_scores(self.task, similarity, self.k)
        scores = {f"ndcg@{self.k}": ndcg(self.task, run, self.k), **retrieval_scores(ranks, self.k)}
        logger.info("%s, epoch %s, step %s: %s", self.task.name, epoch, steps, scores)
        if output_path is not None and self.write_csv:
            self._write(Path(output_path) / self.csv_file, {"epoch": epoch, "steps": steps, **scores})
        metrics = self.prefix_name_to_metrics(scores, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of the evaluator."""
        return {"k": self.k, "score": self.score}

    def _by_chunks(self, model: SentenceTransformer) -> Any:
        """Scores ``[Q, N]`` by the chunk vectors of the model inside."""
        inside = next((part for part in model.modules() if hasattr(part, "contextualize")), None)
        if inside is None:
            raise ValueError(
                f"score={self.score!r} needs the chunk vectors of a NextLevelBERT or HATE, and this model has none; "
                "use score='document'."
            )
        sides = []
        for texts in (self.task.queries.values(), self.task.documents.values()):
            books = inside.encode(list(texts))
            chunks = [book.chunks if len(book.chunks) else book.document[None] * 0 for book in books]
            sides.append((chunks, torch.stack([book.document for book in books])))
        (queries, query_vectors), (documents, document_vectors) = sides
        added: dict[str, Any] = {}
        if self.score == "both":
            added = {"document_weight": 1.0, "query_vectors": query_vectors, "document_vectors": document_vectors}
        method: Any = "maxsim" if self.score == "maxsim" else "nearest"
        return chunk_similarity(queries, documents, method, self.top_chunks, **added).cpu().numpy()

    def _warn_of_cuts(self, model: SentenceTransformer) -> None:
        limit = model.max_seq_length
        texts = [*self.task.queries.values(), *self.task.documents.values()]
        if limit is not None and (
            cut := sum(len(text.split()) > limit for text in texts)
        ):  # a word is a token or more
            logger.warning(
                "The model reads at most %d tokens of a text: at least %d of the %d texts of task %s are "
                "truncated.", limit, cut, len(texts), self.task.name
            )  # fmt: skip

    def _write(self, path: Path, row: dict[str, float]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, row)
            if new:
                writer.writeheader()
            writer.writerow(row)
