"""Every data set, collator and model under a stock `Trainer`, with nothing but the defaults of its
arguments."""

import copy
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForMultipleChoice,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

import nextlevelbert as nlb
from nextlevelbert.models.configuration_nextlevelbert import MASK

SUBJECTS = ("the whale swims", "a train departs", "bread is baked", "stars shine far")
TEXTS = [" ".join(f"{SUBJECTS[n % 4]} {day} times." for day in range(40)) for n in range(8)]
SEGMENTS = {"min_segment": 2, "max_segment": 6}


@dataclass
class Triple:
    """A model with its rows and their collator."""

    model: Any
    rows: Any
    collator: Any


@pytest.fixture(scope="module")
def source(toy_encoder_path):
    return nlb.load_chunk_encoder(toy_encoder_path)


def corpus_for(model, source, folder):
    return nlb.encode_corpus(TEXTS, source, model.config.chunking_rule(), folder, progress=False)


def masked(source, folder, encoder):
    model = nlb.NextLevelBertForMaskedVectorModeling.from_chunk_encoder(source, chunk_size=16)
    rows = nlb.PackedVectorDataset(corpus_for(model, source, folder), sequence_length=16)
    return Triple(model, rows, nlb.DataCollatorForVectorMasking())


def hate(source, folder, encoder):
    model = nlb.HateForMaskedSentencePrediction.from_chunk_encoder(
        source, hidden_size=16, num_hidden_layers=1
    )
    rows = nlb.DocumentVectorDataset(corpus_for(model, source, folder), sequence_length=16)
    return Triple(model, rows, nlb.DataCollatorForVectorMasking())


def contrastive(source, folder, encoder):
    model = nlb.NextLevelBertForContrastiveLearning.from_chunk_encoder(source, chunk_size=16)
    rows = nlb.SegmentPairDataset(corpus_for(model, source, folder), **SEGMENTS)
    return Triple(model, rows, nlb.DataCollatorForSegmentPairs(**SEGMENTS))


def cdlm(source, folder, encoder):
    model = nlb.CdlmForMaskedLM.from_encoder(encoder, max_length=64)
    processor = nlb.CdlmProcessor.from_model(model)
    rows = nlb.ClusterDataset([TEXTS[:4], TEXTS[4:]], processor)
    return Triple(model, rows, nlb.DataCollatorForCrossDocumentMasking(processor))


def stored_vectors(source, folder, encoder):
    model = nlb.NextLevelBertForSequenceClassification.from_chunk_encoder(
        source, chunk_size=16, num_labels=4
    )
    corpus = corpus_for(model, source, folder)
    rows = [
        {"inputs_embeds": corpus[n].plain, "labels": n % 4, "id": f"{n}"} for n in range(len(TEXTS))
    ]
    return Triple(model, rows, nlb.DataCollatorForLabelledVectors())


def texts(new):
    """Texts with classes, for a new model over a sentence encoder or of an encoder."""

    def make(source, folder, encoder):
        model = new(source, encoder)
        rows = Dataset.from_dict({"text": TEXTS, "label": [n % 4 for n in range(len(TEXTS))]})
        rows = rows.map(lambda row: model.tokenizer(row["text"]), batched=True)
        return Triple(model, rows, DataCollatorWithPadding(model.tokenizer))

    return make


def choices(source, folder, encoder):
    """As in transformers' own `run_swag`: the document with each question and candidate."""
    model = nlb.NextLevelBertForMultipleChoice.from_chunk_encoder(source, chunk_size=16)
    rows = Dataset.from_dict({"text": TEXTS, "label": [n % 4 for n in range(len(TEXTS))]})
    rows = rows.map(
        lambda row: model.tokenizer([row["text"]] * 4, [f"What? {subject}" for subject in SUBJECTS])
    )
    return Triple(model, rows, DataCollatorForMultipleChoice(model.tokenizer))


SMALL = {"chunk_size": 32, "num_averaged_layers": 2, "num_labels": 4}
HATE = {"hidden_size": 16, "num_hidden_layers": 1, "num_labels": 4}
ALL = {
    "masked": masked,
    "hate": hate,
    "contrastive": contrastive,
    "cdlm": cdlm,
    "stored_vectors": stored_vectors,
    "nextlevelbert": texts(
        lambda source, _: nlb.NextLevelBertForSequenceClassification.from_chunk_encoder(
            source, chunk_size=16, num_labels=4
        )
    ),
    "hate texts": texts(
        lambda source, _: nlb.HateForSequenceClassification.from_chunk_encoder(source, **HATE)
    ),
    "chunkbert": texts(
        lambda _, encoder: nlb.ChunkBertForSequenceClassification.from_encoder(encoder, **SMALL)
    ),
    "bert-al": texts(
        lambda _, encoder: nlb.BertAlForSequenceClassification.from_encoder(
            encoder, segment_length=32, num_labels=4
        )
    ),
    "choices": choices,
}


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_every_triple_trains_and_evaluates(make, source, encoder, tmp_path):
    set_seed(0)
    triple = make(source, tmp_path / "vectors", encoder)
    before = copy.deepcopy(triple.model.state_dict())
    args = TrainingArguments(
        str(tmp_path / "out"), num_train_epochs=2, learning_rate=1e-3, disable_tqdm=True
    )
    trainer = Trainer(
        triple.model, args, triple.collator, train_dataset=triple.rows, eval_dataset=triple.rows
    )
    first = trainer.evaluate()["eval_loss"]
    trainer.train()

    assert getattr(triple.rows, "epoch", 1) == 1  # what is drawn anew in every epoch was
    assert math.isfinite(first)
    assert trainer.evaluate()["eval_loss"] != first

    after = triple.model.state_dict()
    changed = [
        name for name, tensor in after.items() if not torch.equal(tensor.cpu(), before[name])
    ]

    assert changed
    assert "chunk_encoder" not in " ".join(changed)  # it is frozen


@pytest.mark.parametrize("loss", ["smooth_l1", "cross_entropy"])
def test_what_was_learned_is_in_the_log(source, tmp_path, loss):
    model = nlb.NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        source, chunk_size=16, loss=loss
    )
    rows = nlb.PackedVectorDataset(corpus_for(model, source, tmp_path / "v"), sequence_length=16)
    metrics = nlb.MaskedVectorMetrics(loss)
    trainer = Trainer(
        model,
        TrainingArguments(
            str(tmp_path), label_names=["mask_positions", "special_ids"], disable_tqdm=True
        ),
        nlb.DataCollatorForVectorMasking(),
        eval_dataset=rows,
        preprocess_logits_for_metrics=metrics.score_batch,
        compute_metrics=metrics,
    )
    trainer.evaluate()
    [logged] = trainer.state.log_history
    batches = list(trainer.get_eval_dataloader())
    masked = sum(int((batch["special_ids"] == MASK).sum()) for batch in batches)

    assert logged["eval_chance_accuracy"] == pytest.approx(len(batches) / masked)
    assert ("eval_r2" in logged) == (loss == "smooth_l1")


@pytest.mark.long
def test_packed_sequences_train_the_same_when_compiled(source, tmp_path):
    """`--torch_compile`: the layers over chunks are compiled; the number of masks differs."""
    compiled = {"torch_compile": True, "torch_compile_backend": "aot_eager"}
    losses = []
    for number, options in enumerate(({}, compiled)):
        set_seed(0)
        model = nlb.NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
            source, chunk_size=16, num_hidden_layers=1, loss="cross_entropy", num_candidates=8
        )
        model.candidates = torch.randn(8, model.config.chunk_hidden_size)
        folder = tmp_path / f"{number}"
        args = TrainingArguments(
            str(folder / "out"),
            max_steps=3,
            logging_steps=1,
            disable_tqdm=True,
            **options,
        )
        corpus = corpus_for(model, source, folder / "vectors")
        rows = nlb.PackedVectorDataset(corpus, sequence_length=16)
        trainer = Trainer(model, args, nlb.DataCollatorForVectorMasking(), train_dataset=rows)
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history[:-1]])

    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
