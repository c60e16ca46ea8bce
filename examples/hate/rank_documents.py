"""Ranks the documents of MS MARCO for queries: HATE's experiment, scored by MRR@10.

Queries and documents share one model (Moldovan, "Hierarchical Attention-based Text Encoder"). It
learns to choose the relevant document among those of its batch, over stored sentence vectors. The
table has the model before and after training, the mean of the same sentence vectors, and BM25. Any
NextLevelBERT is trained in the same way.

    python examples/hate/rank_documents.py --model HATE --data_dir MSMARCO --output_dir RANKER
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch.utils.data import DataLoader
from transformers import (
    AutoModel,
    EarlyStoppingCallback,
    HfArgumentParser,
    Trainer,
    TrainerControl,
    TrainingArguments,
    set_seed,
)

from nextlevelbert import DataCollatorForLabelledVectors, encode_corpus, model_path
from nextlevelbert.command import run_command
from nextlevelbert.data import columns_of
from nextlevelbert.evaluation import (
    Ranking,
    RetrievalTask,
    bm25_scores,
    rank_by_scores,
    rank_documents,
    retrieval_scores,
    trec_run,
)

logger = logging.getLogger(__name__)

DOCUMENTS = "msmarco-docs.tsv"  # id, URL, title and body; all files may be .gz
TEXTS_AT_A_TIME = 1_024

Batch = dict[str, dict[str, torch.Tensor]]
Relevant = Mapping[str, Mapping[str, int]]  # query id → document id → grade


@dataclass
class RankingArguments:
    model: str = field(metadata={"help": "HATE or NextLevelBERT: folder, or name on the Hub."})
    data_dir: str = field(metadata={"help": "Folder of MS MARCO's document files."})
    train_split: str = field(default="doctrain", metadata={"help": "Split to train on."})
    test_split: str = field(
        default="docdev", metadata={"help": "Split to report on; its top 100 are ranked, if given."}
    )
    validation_share: float = field(
        default=0.1,
        metadata={"help": "Share of the training documents whose queries choose the epoch."},
    )
    k: int = field(default=10, metadata={"help": "Rank k of MRR@k and the other scores."})


# --- MS MARCO's files


def read_split(folder: Path, split: str, is_training: bool) -> RetrievalTask:
    """Reads the judged queries of a split, and the documents to rank for them.

    In training these are the judged documents. Otherwise they are the documents in the file of
    the top 100, or the whole collection if there is no such file. A document without a text is
    left out.

    Raises:
        ValueError: a line has too few columns, or an id has no text.
    """
    relevant = read_grades(folder / f"msmarco-{split}-qrels.tsv")
    needed = set[str]().union(*relevant.values())
    candidates = None
    top = folder / f"msmarco-{split}-top100"
    if not is_training and (top.exists() or top.with_name(f"{top.name}.gz").exists()):
        candidates = read_candidates(top, relevant)
        needed.update(*candidates.values())

    documents = {}
    is_whole = candidates is None and not is_training
    for _, (name, _, title, body) in columns_of(folder / DOCUMENTS, delimiter="\t", count=4):
        if is_whole or name in needed:
            documents[name] = f"{title} {body}".strip()
    queries = {}
    queries_file = folder / f"msmarco-{split}-queries.tsv"
    for _, (query, text) in columns_of(queries_file, delimiter="\t", count=2):
        if query in relevant:
            queries[query] = text

    unknown = (needed - documents.keys()) | (relevant.keys() - queries.keys())
    if unknown:
        raise ValueError(
            f"{folder.name}, {split}: {len(unknown)} ids have no text, such as {min(unknown)!r}."
        )

    documents = {name: text for name, text in documents.items() if text}
    if candidates is not None:
        for query, names in candidates.items():
            candidates[query] = [name for name in names if name in documents]
    logger.info("%s: %d queries, %d documents", split, len(queries), len(documents))
    return RetrievalTask(
        f"msmarco-{split}",
        queries=queries,
        documents=documents,
        relevant=relevant,
        candidates=candidates,
    )


def read_grades(path: Path) -> Relevant:
    relevant: dict[str, dict[str, int]] = {}
    for location, (query, _, document, grade) in columns_of(path, delimiter=None, count=4):
        if not grade.removeprefix("-").isdecimal():
            raise location.error("grade", f"must be a whole number, got {grade!r}.")
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    return relevant


def read_candidates(path: Path, queries: Iterable[str]) -> dict[str, list[str]]:
    candidates: dict[str, list[str]] = {query: [] for query in queries}
    for _, (query, _, document) in columns_of(path, delimiter=None, count=3):
        if query in candidates:
            candidates[query].append(document)
    return candidates


def hold_out_queries(
    task: RetrievalTask, share: float, seed: int
) -> tuple[RetrievalTask, RetrievalTask]:
    """Splits the queries, so that no relevant document is in both parts.

    Returns:
        The training set and the validation set. Validation ranks the documents of both.
    """
    relevant_documents = sorted(set[str]().union(*task.relevant.values()))
    count = max(round(share * len(relevant_documents)), 1)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(relevant_documents))
    held_out = {relevant_documents[index] for index in order[:count].tolist()}

    train = {}
    validation = {}
    for query, grades in task.relevant.items():
        if held_out.issuperset(grades):
            validation[query] = grades
        elif held_out.isdisjoint(grades):
            train[query] = grades
    lost = len(task.queries) - len(train) - len(validation)
    if lost:
        logger.warning("%d queries have relevant documents in both parts: left out.", lost)
    return with_queries(task, "train", train), with_queries(task, "validation", validation)


def with_queries(task: RetrievalTask, name: str, relevant: Relevant) -> RetrievalTask:
    queries = {query: task.queries[query] for query in relevant}
    return RetrievalTask(
        f"{task.name} {name}", queries=queries, documents=task.documents, relevant=relevant
    )


# --- Vectors and rankings


def encode_texts(
    tasks: Iterable[RetrievalTask], model: Any, encoder: Any, folder: Path
) -> dict[str, torch.Tensor]:
    """Encodes every text once with the frozen sentence encoder; an interrupted run resumes.

    Returns:
        The sentence vectors ``[n, D]`` of each text.
    """
    distinct: dict[str, None] = {}  # in order
    for task in tasks:
        distinct |= dict.fromkeys(task.queries.values())
        distinct |= dict.fromkeys(task.documents.values())
    texts = list(distinct)

    documents = ((str(index), text) for index, text in enumerate(texts))
    corpus = encode_corpus(documents, encoder, model.config.chunking_rule(), folder)
    for index, text in enumerate(texts):
        if str(index) in corpus.empty:
            raise ValueError(f"The text {text[:60]!r} contains no token. Leave it out.")
    return {text: corpus[str(index)].plain for index, text in enumerate(texts)}


def rank(
    task: RetrievalTask, vectors: Mapping[str, torch.Tensor], model: Any = None
) -> dict[str, Ranking]:
    """Ranks documents by vectors of whole texts.

    Args:
        task: the queries and the documents.
        vectors: the sentence vectors ``[n, D]`` of each text.
        model: computes document vectors; without a model, a text gets the mean of its vectors.
    """
    encoded = []
    for texts in (task.queries, task.documents):
        sentences = [vectors[text] for text in texts.values()]
        if model is None:
            rows = [values.float().mean(dim=0) for values in sentences]
            encoded.append(torch.stack(rows))
        else:
            encoded.append(document_vectors(sentences, model))
    queries, documents = encoded
    return rank_documents(task, query_vectors=queries, document_vectors=documents)


@torch.no_grad()
def document_vectors(sentences: list[torch.Tensor], model: Any) -> torch.Tensor:
    """Computes document vectors ``[N, H]`` from the sentence vectors of N texts."""
    model.eval()
    batches = []
    for start in range(0, len(sentences), TEXTS_AT_A_TIME):
        batch = [values.float() for values in sentences[start : start + TEXTS_AT_A_TIME]]
        _, pooled = model.contextualize(batch)
        batches.append(pooled.float().cpu())
    return torch.cat(batches)


# --- Training


class RankingTrainer(Trainer):
    """Trains on pairs of a query and a relevant document; evaluation ranks the validation set.

    The loss is the cross-entropy of choosing the document of a query among those of the batch, by
    cosine times 20.

    Args:
        sets: ``"train"`` and ``"validation"``.
        vectors: the sentence vectors ``[n, D]`` of each text.
        k: the cut-off rank of the scores.
        **kwargs: further arguments of `Trainer`.
    """

    def __init__(
        self,
        sets: Mapping[str, RetrievalTask],
        vectors: Mapping[str, torch.Tensor],
        k: int,
        **kwargs: Any,
    ) -> None:
        self.sets = sets
        self.vectors = vectors
        self.k = k
        self.pad = DataCollatorForLabelledVectors()

        pairs = []
        for query, grades in sets["train"].relevant.items():
            pairs += [(query, document) for document in grades]
        super().__init__(train_dataset=pairs, eval_dataset=pairs, **kwargs)

    def collate(self, pairs: list[tuple[str, str]]) -> Batch:
        """Pads the sentence vectors of the queries and of the documents of a batch."""
        train = self.sets["train"]
        queries = []
        documents = []
        for query, document in pairs:
            queries.append({"inputs_embeds": self.vectors[train.queries[query]]})
            documents.append({"inputs_embeds": self.vectors[train.documents[document]]})
        return {"query": self.pad(queries), "document": self.pad(documents)}

    def get_train_dataloader(self) -> DataLoader:
        """Draws batches in which no query and no document is repeated.

        A repeated text would be a negative of itself.
        """
        pairs = self.train_dataset
        queries = [f"query {query}" for query, _ in pairs]
        documents = [f"document {document}" for _, document in pairs]
        sampler = NoDuplicatesBatchSampler(
            Dataset.from_dict({"query": queries, "document": documents}),
            batch_size=min(self.args.train_batch_size, len(set(queries)), len(set(documents))),
            drop_last=True,
            generator=torch.Generator(),
            seed=self.args.seed,
        )
        loader = DataLoader(pairs, batch_sampler=sampler, collate_fn=self.collate)
        return self.accelerator.prepare(loader)

    def compute_loss(self, model: Any, inputs: Batch, *args: Any, **kwargs: Any) -> torch.Tensor:
        queries = model(**inputs["query"]).pooler_output  # [B, H]
        documents = model(**inputs["document"]).pooler_output
        loss = MultipleNegativesRankingLoss(model)
        return loss.compute_loss_from_embeddings([queries, documents], labels=None)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        model = self.accelerator.unwrap_model(self.model)
        rankings = rank(self.sets["validation"], self.vectors, model)
        values = retrieval_scores(rankings, self.k)
        scores = {f"eval_{name}": value for name, value in values.items()}
        self.log(scores)
        self.control: TrainerControl = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics=scores
        )
        return scores

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Keeps the card that is saved with the model."""


def parse_arguments(argv: list[str] | None) -> tuple[RankingArguments, TrainingArguments]:
    """Reads the options. The training keeps the epoch with the best MRR, and stops early."""
    parser = HfArgumentParser((RankingArguments, TrainingArguments))
    parser.set_defaults(
        output_dir="ranker",
        learning_rate=5e-5,
        num_train_epochs=20,
        warmup_steps=0.1,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        greater_is_better=True,
    )
    options, args = parser.parse_args_into_dataclasses(argv)
    args.metric_for_best_model = f"mrr@{options.k}"
    return options, args


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    options, args = parse_arguments(argv)
    logging.basicConfig(level=logging.INFO)
    set_seed(args.seed)
    folder = Path(args.output_dir)

    # 1. The sets: some of the training queries choose the epoch.
    data = Path(options.data_dir)
    judged = read_split(data, options.train_split, is_training=True)
    train, validation = hold_out_queries(judged, options.validation_share, args.seed)
    test = read_split(data, options.test_split, is_training=False)

    # 2. The model, and what it reads: the sentence vectors of all texts.
    model = AutoModel.from_pretrained(model_path(options.model))
    if model.config.pooling == "plain":
        raise ValueError(
            f"--model {options.model} has no layers to train: its document vectors are the mean of"
            " its chunk vectors. Give a model with layers over its chunks."
        )
    encoder = model.detach_chunk_encoder()
    encoder.encoder.to(args.device)
    vectors = encode_texts([judged, test], model, encoder, folder / "_vectors")  # never uploaded

    # 3. The rows that need no training.
    name = Path(options.model).resolve().name
    rankings = {f"{name}, before training": rank(test, vectors, model.to(args.device))}
    rankings["mean of the sentence vectors"] = rank(test, vectors)
    word_scores = bm25_scores(list(test.queries.values()), list(test.documents.values()))
    rankings["BM25"] = rank_by_scores(test, word_scores)

    # 4. Training.
    trainer = RankingTrainer(
        {"train": train, "validation": validation},
        vectors,
        k=options.k,
        model=model,
        args=args,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=3)],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    rankings = {name: rank(test, vectors, model), **rankings}

    # 5. The table, the ranked lists in TREC's format, and the model with its sentence encoder.
    scores = {}
    print(f"| {test.name} | MRR@{options.k} |\n| --- | --- |")
    for row, ranking in rankings.items():
        scores[row] = retrieval_scores(ranking, options.k)
        print(f"| {row} | {scores[row][f'mrr@{options.k}']:.4f} |")
    if trainer.is_world_process_zero():
        results = {"task": test.name, "rows": scores, "log": trainer.state.log_history}
        (folder / "results.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
        run = trec_run(rankings[name], name)
        (folder / "predictions.trec").write_text(f"{run}\n", encoding="utf-8")

    model.attach_chunk_encoder(encoder)
    trainer.save_model()
    if args.push_to_hub:
        trainer.push_to_hub()
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
