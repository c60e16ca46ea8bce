"""The command line of pretraining: ``nextlevelbert-pretrain``, and `run_pretraining.py` in the repository."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..training.command_line import OptionParser, peek, refuse, stoppable, words_of
from ..training.recipes import offer_recipe, with_recipe
from . import cdlm, vectors
from .arguments import HateArguments, NextLevelBertArguments, PretrainingArguments
from .cdlm_arguments import CdlmDataArguments, CdlmModelArguments, CdlmPretrainingArguments
from .corpus_arguments import CorpusArguments
from .objective_arguments import MaskingArguments, ObjectiveArguments


@dataclass(frozen=True)
class Pretraining:
    """How one type of model is pretrained.

    Attributes:
        description: what its help begins with; ``{program}`` stands for the command.
        options: the classes of its options.
        run: called with an object of each.
    """

    description: str
    options: tuple[type[Any], ...]
    run: Callable[..., None]


PRETRAINING = {
    "nextlevelbert": Pretraining(
        """\
Pretrains a NextLevelBERT: documents → chunk vectors on disk → masked vector modelling → a checkpoint with its card.

From text, which is encoded once into --corpus_dir:
  {program} --train_file books.jsonl --corpus_dir books_vectors --output_dir model --do_train
Contrastive, with document vectors that start at the mean of whitened chunk vectors:
  {program} --objective contrastive --pooling residual --whiten_chunks --train_file books.jsonl \\
      --per_device_train_batch_size 64 --output_dir model --do_train
The other models have their own options: --model_type hate --help, --model_type cdlm --help.""",
        (NextLevelBertArguments, ObjectiveArguments, CorpusArguments, PretrainingArguments),
        vectors.run,
    ),
    "hate": Pretraining(
        """\
Pretrains a HATE: documents → sentence vectors on disk → a new document model of any size that finds masked sentences.

  {program} --model_type hate --hidden_size 64 --train_file books.jsonl --output_dir hate --do_train""",
        (HateArguments, MaskingArguments, CorpusArguments, PretrainingArguments),
        vectors.run,
    ),
    "cdlm": Pretraining(
        """\
Pretrains a CDLM: sets of related documents → masked words with global attention → a checkpoint with its card.

  {program} --model_type cdlm --model FacebookAI/roberta-base --dataset_name alexfabbri/multi_news \\
      --validation_split validation --bf16 --output_dir cdlm""",
        (CdlmModelArguments, CdlmDataArguments, CdlmPretrainingArguments),
        cdlm.run,
    ),
}


@stoppable
def main() -> None:
    """Pretrains the ``--model_type`` that the command line asks for."""
    words = words_of(sys.argv[1:])
    [model_type] = peek(words, "model_type")
    model_type = model_type or "nextlevelbert"
    if model_type not in PRETRAINING:
        refuse(f"--model_type is one of {', '.join(PRETRAINING)}, got {model_type!r}.")
    ours, program = PRETRAINING[model_type], Path(sys.argv[0]).name
    start = program if model_type == "nextlevelbert" else f"{program} --model_type {model_type}"
    others = {f"--model_type {name}": other.options for name, other in PRETRAINING.items() if name != model_type}
    parser = OptionParser(ours.options, start, ours.description.format(program=program), others)
    offer_recipe(parser, model_type)
    options = parser.read(with_recipe(words, model_type))[: len(ours.options)]
    logging.basicConfig(level=logging.INFO if options[-1].should_log else logging.WARNING, format="%(message)s")
    ours.run(*options)
