"""The task ``multihop_qa``: answer a question from ten paragraphs, and name the sentences that support the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...data.rows import hold_out
from ...evaluation.hotpotqa import hotpotqa_scores
from ...finetuning.task import Scores, Source
from ...models.modeling_cdlm import CdlmForMultiHopQuestionAnswering
from ...training.cards import QUESTION_WIDGET
from ..cdlm import CdlmOptions, CdlmTask, Logits, Predicted
from .data import HotpotData, read_hotpotqa
from .questions import AnswerLogits, QuestionDataset, read_answer


@dataclass(kw_only=True)
class QuestionOptions(CdlmOptions):
    """Every option of ``--task multihop_qa`` beside those of training."""

    _argument_group_name = "data"

    train_file: str | None = field(
        default=None, metadata={"help": "Training set: HotpotQA's JSON, or a .jsonl or .parquet (also .gz) of it."}
    )


class MultihopQuestionAnswering(CdlmTask[QuestionOptions, HotpotData, QuestionDataset]):
    """Multi-hop question answering with CDLM (section 3.4)."""

    name = "multihop_qa"
    option_classes = (QuestionOptions,)
    model_class = CdlmForMultiHopQuestionAnswering
    labels = ("start_positions", "end_positions", "type_labels", "sentence_labels", "paragraph_labels")
    score = "joint_f1"
    pipeline_tag, tag = "question-answering", "multi-hop-question-answering"
    widget = QUESTION_WIDGET
    snippet = """\
from transformers import AutoModelForQuestionAnswering

import nextlevelbert  # registers the architecture
from nextlevelbert.tasks.multihop_qa import answer

model = AutoModelForQuestionAnswering.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
print(answer(model, processor, "Who wrote it?", [("A title", ["A sentence.", "Another one."])]))"""

    def read(self, source: Source, train: HotpotData | None) -> HotpotData:
        return read_hotpotqa(source.path, source.split or "train", self.options.dataset_config_name)

    def hold_out(self, data: HotpotData, share: float, seed: int) -> tuple[HotpotData, HotpotData]:
        return hold_out(data, "questions", share, seed)

    def texts(self, data: HotpotData) -> set[str]:
        return {question.question for question in data.questions}

    def describe(self, data: HotpotData) -> str:
        return f"{len(data.questions)} questions ({data.source})"

    def unlabelled(self, data: HotpotData) -> int:
        return sum(question.answer is None for question in data.questions)

    def sequences(self, data: HotpotData, training: bool) -> QuestionDataset:
        return QuestionDataset(data, self.processor)

    def predictions(self, name: str, logits: Logits) -> Predicted:
        data, rows = self.sets.by_name[name], self.datasets[name]
        answers = {}
        for place, question in enumerate(rows.questions):
            own = AnswerLogits(*(scores[place] for scores in logits[:4]))
            found = read_answer(rows[place], question.paragraphs, own)
            answers[question.id] = (found.text, found.supporting)
        records = [
            {"id": question.id, "answer": answers[question.id][0], "supporting": answers[question.id][1],
             "gold": question.answer}
            for question in data.questions
        ]  # fmt: skip
        return Predicted(_scores(data, answers), records)

    def trivial_scores(self, data: HotpotData) -> dict[str, Scores]:
        """The first title as the answer, and the first sentence of every paragraph as support."""
        answers = {
            question.id: (question.paragraphs[0].title, [(title, 0) for title, _ in question.paragraphs])
            for question in data.questions
        }
        return {"first title, all first sentences": _scores(data, answers)}


def _scores(data: HotpotData, answers: Mapping[str, tuple[str, Collection[tuple[str, int]]]]) -> Scores:
    found = hotpotqa_scores(answers, data.references)
    return {name: value for name, value in found.items() if name.endswith(("_em", "_f1"))}
