"""What `AutoModelFor…` says where a family has no such head."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from .models.portable_checkpoint import PortablePreTrainedModel

_AUTO_CLASSES: tuple[Any, ...] = (
    AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForMultipleChoice, AutoModelForNextSentencePrediction,
    AutoModelForPreTraining, AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)  # fmt: skip


class AbsentHead:
    """Stands for a head that a family does not have, so that its auto class says so in a sentence.

    transformers would list the names of all configurations that have one, five pages of them.
    """

    def __init__(self, auto_class: str, model: type[PortablePreTrainedModel]) -> None:
        self.message = (
            f"{auto_class} has no {model.config_class.model_type}. The family has {', '.join(model.family_auto_map)}."
        )

    def from_pretrained(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(self.message)

    _from_config = from_pretrained


def refuse_other_heads(models: Iterable[type[PortablePreTrainedModel]]) -> None:
    """Registers an `AbsentHead` for each common auto class that a family lacks; for after its own are registered."""
    for model in models:
        for auto_class in _AUTO_CLASSES:
            if auto_class.__name__ not in model.family_auto_map:
                auto_class.register(model.config_class, AbsentHead(auto_class.__name__, model), exist_ok=True)
