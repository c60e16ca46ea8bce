"""Pretrains a NextLevelBERT with other masks or random layers: NextLevelBERT's Table 4.

"NextLevelBERT: Masked Language Modeling with Higher-Level Representations for Long Documents"
(Czinczoll et al., ACL 2024, arXiv 2402.17682), sections 3.1 and 4.5. The settings are those of
`nextlevelbert pretrain --recipe paper`.

    python examples/next_level_bert/masking.py BOOKS --output_dir MODEL

The rows of the table are `--mask_share 1 --random_share 0`, `--random_layers`, `--probability 0.3`
and `--probability 0.4`.
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace

import numpy as np
from accelerate import PartialState
from transformers import Trainer, TrainingArguments, set_seed

from nextlevelbert import (
    DataCollatorForVectorMasking,
    MaskedVectorMetrics,
    NextLevelBertForMaskedVectorModeling,
    PackedVectorDataset,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
)
from nextlevelbert.command import run_command
from nextlevelbert.training.epochs import SetEpochCallback

HELD_OUT = 0.05  # share of the documents to evaluate on


def parse_arguments(argv: list[str] | None) -> Namespace:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("documents", help="file, folder or pattern of documents")
    parser.add_argument("--output_dir", required=True, help="folder of the model")
    parser.add_argument("--chunk_encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--chunk_size", type=int, default=256, help="tokens per chunk")
    parser.add_argument(
        "--probability", type=float, default=0.15, help="share of the chunk vectors to predict"
    )
    parser.add_argument(
        "--mask_share", type=float, default=0.8, help="share of these that become [MASK]"
    )
    parser.add_argument(
        "--random_share", type=float, default=0.1, help="share that become another vector"
    )
    parser.add_argument("--random_layers", action="store_true", help="copy no layers")
    parser.add_argument("--sequence_length", type=int, default=512, help="positions in a sequence")
    parser.add_argument("--device_batch", type=int, default=8, help="sequences on one device")
    parser.add_argument("--max_steps", type=int, default=-1, help="end before 20 epochs")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args(argv)


def training_arguments(args: Namespace) -> TrainingArguments:
    """Returns the optimiser and schedule of section 3.1; the batch of 512 is accumulated."""
    return TrainingArguments(
        args.output_dir,
        per_device_train_batch_size=args.device_batch,
        gradient_accumulation_steps=512 // (args.device_batch * PartialState().num_processes),
        num_train_epochs=20,
        max_steps=args.max_steps,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        weight_decay=0.01,
        label_names=["mask_positions", "special_ids"],
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        seed=args.seed,
    )


def main(argv: list[str] | None = None) -> dict[str, float]:
    args = parse_arguments(argv)
    set_seed(args.seed)

    # 1. The chunk encoder, and layers over its vectors. The mean of the loss is as in the authors'
    # code, and so is the dropout.
    encoder = load_chunk_encoder(args.chunk_encoder)
    model = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        encoder,
        chunk_size=args.chunk_size,
        random_layers=args.random_layers,
        attention_dropout=0.1,
        loss="smooth_l1",
        loss_mean="sequences",
    )

    # 2. Chunk vectors of all documents; a run that was interrupted resumes.
    encoder.encoder.to(PartialState().device)
    documents = read_documents(args.documents)
    rule = model.config.chunking_rule()
    corpus = encode_corpus(documents, encoder, rule, folder=f"{args.output_dir}-corpus")

    # 3. Sequences of the documents to train on, and of those that are held out.
    order = np.random.default_rng(args.seed).permutation(len(corpus))
    count = max(1, round(HELD_OUT * len(corpus)))
    sequences = {"sequence_length": args.sequence_length, "seed": args.seed}
    train = PackedVectorDataset(corpus, documents=order[count:], **sequences)
    held_out = PackedVectorDataset(corpus, documents=order[:count], **sequences)

    # 4. Masks that are drawn anew in every epoch.
    collator = DataCollatorForVectorMasking(
        probability=args.probability, mask_share=args.mask_share, random_share=args.random_share
    )

    # 5. Training.
    metrics = MaskedVectorMetrics("smooth_l1")
    trainer = Trainer(
        model,
        training_arguments(args),
        train_dataset=train,
        eval_dataset=held_out,
        data_collator=collator,
        preprocess_logits_for_metrics=metrics.score_batch,
        compute_metrics=metrics,
        callbacks=[SetEpochCallback()],
    )
    trainer.train()

    # 6. The scores on the held-out documents, and the checkpoint.
    scores = trainer.evaluate()
    trainer.log_metrics("eval", scores)
    trainer.save_model()
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
