"""The task ``ranking``: a model learns to rank documents for queries, from pairs or MS MARCO's document files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoModel

from ...evaluation.retrieval import retrieval_scores
from ...finetuning.arguments import FinetuningArguments, OwnLossArguments, TaskOptions
from ...finetuning.controls import MEAN, WHITENED, fitted_whitening
from ...finetuning.other_encoders import OtherEncoder
from ...finetuning.task import Row, Scores, SeedResult, Source, Task, mean_and_deviation
from ...finetuning.vector_models import VectorModelOptions, load, open_reader
from ...models.chunk_encoder import weights_fingerprint
from ...training.cards import SIMILARITY_WIDGET, CardFacts, plain
from ...training.plots import CURVE
from .baselines import MeanRanker
from .data import RankingData, hold_out_queries, read_ranking
from .train import QueryDocumentPairs, RankingTrainer, encode_ranking, first_chunks, rank

_SNIPPET = """\
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
query = model.encode_query("what the document should be about")
documents = model.encode_document(["the text of a whole document", "and of another one"])
scores = model.similarity(query, documents)"""

_LIMITS = (
    "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as its vector.",
    "Documents that share names or rare words with a query are found by BM25 without training; compare on your own "
    "texts.",
)


@dataclass(kw_only=True)
class RankingDataOptions(TaskOptions):
    """Queries with relevant documents, and perhaps candidates."""

    _argument_group_name = "data"

    train_file: str | None = field(
        default=None,
        metadata={"help": "Training set: a .jsonl, .json, .csv or .parquet (also .gz) of pairs, a quoted pattern of "
                          "these, a folder of save_to_disk, or one with BEIR's or MS MARCO's files."},
    )  # fmt: skip
    validation_candidates: str | None = field(
        default=None,
        metadata={"help": "Documents to rank for each validation query: a run in TREC's format. By default, the "
                          "whole collection, or MS MARCO's top100 if it is in the same folder."},
    )  # fmt: skip
    test_candidates: str | None = field(default=None, metadata={"help": "The same for the test set."})
    query_column: str | None = field(default=None, metadata={"help": "Column of the queries; default query."})
    document_column: str | None = field(
        default=None, metadata={"help": "Column of the relevant documents; default document."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("validation", "test"):
            if getattr(self, f"{name}_candidates") and self.place(name) is None:
                raise ValueError(
                    f"--{name}_candidates belong to a {name} set, which is missing; give it with --{name}_file or "
                    f"--{name}_split."
                )


@dataclass(kw_only=True)
class RankingOptions(VectorModelOptions, RankingDataOptions):
    """Every option of ``--task ranking`` beside those of training."""

    _argument_group_name = "ranking"
    arguments = OwnLossArguments
    baselines = ("avg_sbert", "sbert", "tobert")

    k: int = field(default=10, metadata={"help": "Cut-off rank for MRR and recall; default 10."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise ValueError(f"--k must be 1 or more, got {self.k}.")

    @property
    def usual_learning_rate(self) -> float:
        return 1e-3 if self.vectors_only else self.whole_model_rate


@dataclass(kw_only=True)
class RankingResult(SeedResult):
    """What a run gives; `before` holds the scores before training, by name of the set."""

    before: dict[str, Scores] = field(default_factory=dict)


class Ranking(Task[RankingOptions, RankingData]):
    """Document ranking; the epoch and the seed with the highest validation MRR are kept."""

    name = "ranking"
    option_classes = (RankingOptions,)
    result = RankingResult
    greater_is_better = True

    def __init__(self, options: RankingOptions, args: FinetuningArguments) -> None:
        super().__init__(options, args)
        self.metric = self.curve_metric = args.metric_for_best_model = f"mrr@{options.k}"
        args.greater_is_better = True
        options.check_upload(args.push_to_hub)

    def read(self, source: Source, train: RankingData | None) -> RankingData:
        options = self.options
        candidates = {"validation": options.validation_candidates, "test": options.test_candidates}
        return read_ranking(
            source.path,
            source.split or ("train" if source.name == "train" else "test"),
            candidates.get(source.name),
            options.query_column,
            options.document_column,
            options.dataset_config_name,
        )

    def hold_out(self, data: RankingData, share: float, seed: int) -> tuple[RankingData, RankingData]:
        return hold_out_queries(data, share, seed)

    def texts(self, data: RankingData) -> set[str]:
        """The texts that a query has as an answer; ids say nothing across files."""
        return {data.task.documents[document] for grades in data.task.relevant.values() for document in grades}

    def describe(self, data: RankingData) -> str:
        return f"{len(data.task.queries)} queries, {len(data.task.documents)} documents ({data.task.name})"

    def prepare(self) -> dict[str, object]:
        options, args = self.options, self.args
        reader: Any = open_reader(options).to(args.device)
        # Once for all seeds; the processes after the first read what that has stored.
        with args.main_process_first(local=False, desc="encoding"):
            self.vectors = encode_ranking(
                reader,
                self.sets.by_name,
                dtype=options.precision(args.device),
                cache_dir=options.cache(args.output_dir),
            )
        # The rows of means: where a text has one vector, its mean is that vector.
        self._controls = None if isinstance(reader, OtherEncoder) else self.vectors
        if options.model == "sbert":
            self.vectors = {name: first_chunks(vectors) for name, vectors in self.vectors.items()}
        negatives = {"batch_size_per_process": args.train_batch_size}  # they come from a process's own batch
        if options.other:
            return {"weights": weights_fingerprint(reader.model), **negatives}
        self._model_type = reader.config.model_type
        # An untrained model is random where it does not come from the chunk encoder.
        weights = reader.get_chunk_encoder().fingerprint() if options.new else weights_fingerprint(reader)
        self._chunk_encoder = reader.cpu().detach_chunk_encoder()
        return {"weights": weights, **negatives}

    def _new_model(self) -> Any:
        """The model at the start of a run, without its chunk encoder; of a baseline, the map of its vectors."""
        if self.options.vectors_only:
            return MeanRanker(self.vectors["train"].queries[0].shape[1])
        model = load(self.options)
        model.detach_chunk_encoder()
        return model

    def train(self, seed: int, folder: Path) -> RankingResult:
        model, args, resumed = self.start(seed, folder, self._new_model)
        model.to(args.device)
        before = self._scores(model)
        trainer = RankingTrainer(
            model=model,
            args=args,
            train_dataset=QueryDocumentPairs(self.vectors["train"]),
            eval_dataset=self.vectors["validation"],
            k=self.options.k,
            callbacks=self.stopping(),
        )
        trained = trainer.train(resume_from_checkpoint=resumed)
        trainer.save_model(str(folder))
        return RankingResult.of(trainer, trained, self._scores(model), before=before)

    def _scores(self, model: Any) -> dict[str, Scores]:
        evaluated = {name: vectors for name, vectors in self.vectors.items() if name != "train"}
        return {name: retrieval_scores(rank(vectors, model), self.options.k) for name, vectors in evaluated.items()}

    def rows(self, name: str, results: Sequence[RankingResult]) -> dict[str, Row]:
        return {"before training": mean_and_deviation([result.before[self.sets.reported] for result in results])}

    def baselines(self, results: Sequence[RankingResult]) -> dict[str, Row]:
        if self._controls is None:
            return {}
        vectors = self._controls[self.sets.reported]
        ranks = {MEAN: rank(vectors)}
        if (whitening := fitted_whitening(self._controls["train"].documents)) is not None:
            ranks[WHITENED] = rank(vectors, whitening=whitening)
        return {name: {**retrieval_scores(found, self.options.k)} for name, found in ranks.items()}

    def publish(self, best: RankingResult, folder: Path, output: Path) -> None:
        if self.options.vectors_only:
            super().publish(best, folder, output)
            return
        model = AutoModel.from_pretrained(folder)
        model.attach_chunk_encoder(self._chunk_encoder)
        model.save_pretrained(output)

    def card(self, name: str, best: RankingResult, table: str, settings: dict[str, object]) -> CardFacts | None:
        if self.options.vectors_only:
            return None
        pool, candidates = self.sets.scored.task, self.sets.scored.candidates
        searched = f"{len(pool.documents):,} documents" if candidates is None else "its candidates"
        measured = (
            f"{len(pool.queries):,} queries of {plain(pool.name)}, each ranking {searched}.{self.caveat('epoch')}"
        )
        return CardFacts(
            name=name,
            summary=f"A {self.options.card_name(self._model_type)} that gives a query and the long documents that "
            "answer it nearby vectors.",
            snippet=_SNIPPET.replace("{name}", name),
            training={
                **self.training_facts(best, settings),
                "pairs": sum(len(grades) for grades in self.sets.train.task.relevant.values()),
            },
            training_note="Every query looks for its own document among those of its batch (cosine times 20, "
            "cross-entropy).",
            pictures={CURVE: "Loss and validation score over epochs"},
            measured=f"{measured}\n\n{table}",
            limits=_LIMITS,
            pipeline_tag="sentence-similarity",
            tags=[self._model_type, "long-documents", "sentence-transformers", "document-ranking"],
            base_model=self.options.base_model,
            scores={self.metric: best.scores[self.sets.reported][self.metric]},
            dataset=pool.name,
            scored_task="text-retrieval",
            widget=SIMILARITY_WIDGET,
        )
