"""Options of the papers arrive where they act: in the model, the collator or the rows that a
trainer is made of.

A row of `RUNS` is a command, which ends when it makes its trainer, and options, none at its
default, with their place.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nextlevelbert import DocumentVectorDataset
from nextlevelbert.finetuning import classification
from nextlevelbert.pretraining import pretrain
from nextlevelbert.training.trainer import CardTrainer

from .toys.finetuning import write


class Arrived(BaseException):
    """Model, arguments, collator, training and validation set of the trainer that is not made."""

    def __init__(
        self,
        trainer,
        model,
        args,
        data_collator=None,
        train_dataset=None,
        eval_dataset=None,
        **more,
    ):
        self.model = model
        self.arguments = args
        self.collator = data_collator
        self.train = train_dataset
        self.validation = eval_dataset


def stop(*args, **kwargs):
    raise Arrived(*args, **kwargs)


CONCEPTS = {"77": {"label": "tea"}, "192": {}, "2356": {}}  # an object, of class names
ROWS = json.loads((Path(__file__).with_name("toys") / "rows.json").read_text())


RUNS: dict[str, tuple[Callable[[list[str]], None], list[str], list[dict], dict[str, Callable]]] = {
    "nextlevelbert": (
        pretrain.pretrain,
        "--chunk_encoder {sentence_encoder} --chunk_size 8 --do_train --sequence_length 8".split(),
        ROWS["books"],
        {
            "--loss smooth_l1": lambda run: (
                (run.model.config.loss, run.model.config.loss_mean) == ("smooth_l1", "sequences")
            ),
            "--attention_dropout 0.2": lambda run: (
                {
                    layer.attention.self.dropout.p
                    for layer in run.model.base_model.encoder.encoder.layer
                }
                == {0.2}
            ),
            "--masking_probability 0.4": lambda run: run.collator.probability == 0.4,
        },
    ),
    "hate": (
        pretrain.pretrain,
        "--model_type hate --chunk_encoder {sentence_encoder} --do_train".split(),
        ROWS["books"],
        {
            "--sentence_pooling cls": lambda run: run.model.config.chunk_encoder_pooling == "cls",
            "--masking_probability 0.2": lambda run: (
                run.collator.probability == 0.2 and type(run.train) is DocumentVectorDataset
            ),
        },
    ),
    "classification": (
        classification.main,
        "--model {encoder} --model_type truncated".split(),
        ROWS["laws"],
        {
            "--attn_implementation eager": lambda run: (
                run.model.config._attn_implementation == "eager"
            ),
            "--label_names_file {concepts}": lambda run: (
                [*run.model.config.label2id] == [*CONCEPTS]
            ),
            # The row BERT of ChunkBERT's tables.
            "--model_type truncated": lambda run: attention_dropout(run) == 0.1,
        },
    ),
    "chunkbert": (
        classification.main,
        "--model {minilm} --model_type chunkbert".split(),
        ROWS["laws"],
        {
            "--chunk_size 32": lambda run: run.arguments.learning_rate == 3e-5,  # the usual one
            "--keep_attention_dropout": lambda run: attention_dropout(run) == 0.1,
        },
    ),
}


def attention_dropout(run):
    """Of the last layer of the encoder within the model."""
    layers = [
        module for module in run.model.modules() if module.__class__.__name__ == "BertSelfAttention"
    ]
    return layers[-1].dropout.p


@pytest.mark.parametrize(("main", "argv", "rows", "options"), RUNS.values(), ids=RUNS)
def test_it_acts(
    main,
    argv,
    rows,
    options,
    encoder,
    toy_encoder_path,
    minilm_path,
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr(CardTrainer, "__init__", stop)
    concepts = tmp_path / "concepts.json"
    concepts.write_text(json.dumps(CONCEPTS))
    line = " ".join([*argv, *options]).format(
        encoder=encoder, sentence_encoder=toy_encoder_path, minilm=minilm_path, concepts=concepts
    )
    file = write(tmp_path / "rows.jsonl", rows)
    line += f" --use_cpu --validation_share 0.5 --train_file {file} --output_dir {tmp_path}/model"
    with pytest.raises(Arrived) as arrived:
        main(line.split())
    for option, acts in options.items():
        assert acts(arrived.value), option
