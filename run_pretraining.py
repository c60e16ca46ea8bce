"""Pretrains a NextLevelBERT, HATE or CDLM: documents → chunk vectors on disk → masked vector modelling → checkpoint.

From text (encoded once into ``corpus_dir``; a run that is killed goes on where it stopped):

    python run_pretraining.py --train_file books.jsonl --corpus_dir books_vectors --output_dir model --do_train

On several processes or machines, which share out encoding and training (see docs/scaling.md):

    torchrun --nproc_per_node 2 run_pretraining.py --train_file books.jsonl --output_dir model --do_train

``--model_type hate`` makes a chunk of every sentence and a new document model over them, of any size:

    python run_pretraining.py --model_type hate --hidden_size 64 --train_file books.jsonl --output_dir hate --do_train

``--objective contrastive`` learns which segments belong to one document, ``both`` beside masked vectors; with
``--pooling residual`` and ``--whiten_chunks`` document vectors start at the mean of whitened chunk vectors:

    python run_pretraining.py --objective contrastive --pooling residual --whiten_chunks --train_file books.jsonl \\
        --per_device_train_batch_size 64 --output_dir model --do_train

``--model_type cdlm`` masks words in sets of related documents, and gives them global attention (its own options:
``--model_type cdlm --help``):

    python run_pretraining.py --model_type cdlm --model FacebookAI/roberta-base --dataset_name alexfabbri/multi_news \\
        --validation_split validation --bf16 --output_dir cdlm

Without ``--do_train`` the documents are only encoded; without documents a finished ``corpus_dir`` is read.
Every option: ``--help``.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from transformers import HfArgumentParser, Trainer, set_seed

from nextlevelbert import (
    ChunkingRule,
    DataCollatorForVectorMasking,
    Document,
    DocumentVectorDataset,
    PackedVectorDataset,
    SegmentPairDataset,
    VectorCorpus,
    finish_corpus,
    load_chunk_encoder,
    load_int8_chunk_encoder,
    quantize_chunk_encoder,
    read_documents,
    write_shards,
)
from nextlevelbert.data.documents import read_hub_documents
from nextlevelbert.evaluation import context_mean_baseline
from nextlevelbert.models.chunk_encoder import LoadedChunkEncoder
from nextlevelbert.pretraining import cdlm as cdlm_pretraining
from nextlevelbert.pretraining.arguments import DataArguments, ModelArguments, ObjectiveArguments
from nextlevelbert.pretraining.card import write_pretraining_card
from nextlevelbert.pretraining.trainers import MaskedVectorTrainer, PretrainingArguments, SegmentPairTrainer

logger = logging.getLogger("run_pretraining")


def documents_of(data: DataArguments) -> Iterator[Document]:
    if data.dataset_name:
        return read_hub_documents(
            data.dataset_name, data.dataset_split, data.dataset_config_name, data.text_column, data.id_column
        )
    if not data.train_file:
        raise ValueError("Give the documents with --train_file or --dataset_name, or a finished --corpus_dir.")
    return read_documents(data.train_file, data.text_column, data.id_column)


def in_int8(
    source: LoadedChunkEncoder, data: DataArguments, rule: ChunkingRule, folder: Path, args: PretrainingArguments
) -> LoadedChunkEncoder:
    """The int8 form of the encoder: made once, from the first documents, and kept beside the vectors."""
    if args.device.type != "cpu":
        raise ValueError("--encoder_dtype int8 runs on CPUs only; add --use_cpu, or use bfloat16 on this machine.")
    with args.main_process_first(local=False, desc="making the int8 encoder"):
        try:
            return load_int8_chunk_encoder(source, folder)
        except FileNotFoundError:
            return quantize_chunk_encoder(source, (document.text for document in documents_of(data)), rule, folder)


def split(corpus: VectorCorpus, share: float, seed: int, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Document numbers for training and for evaluation, of these at least so many; the same for the same seed."""
    order = np.random.default_rng(seed).permutation(len(corpus))
    held_out = max(least, round(share * len(corpus))) if share > 0 else 0
    if held_out >= len(corpus):
        raise ValueError(f"{corpus!r} is too small to hold out {held_out} document(s); set --validation_share 0.")
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def new_model(
    args: ModelArguments, objective: ObjectiveArguments, data: DataArguments, source: LoadedChunkEncoder
) -> Any:
    """The model to train, without the chunk encoder: new, or a checkpoint to go on from."""
    kind = objective.model_class(args.model_type)
    if args.model:
        model = kind.from_pretrained(args.model, dtype=torch.float32, **args.fields())
        for option in ("chunk_size", "chunking"):
            given, own = getattr(args, option), getattr(model.config, option)
            if given not in (None, own):
                raise ValueError(
                    f"--{option} {given} is not what {args.model} was trained on, {own}; leave one of both off."
                )
        if model.base_model.chunk_encoder is not None:
            model.base_model.detach_chunk_encoder()
        model.base_model.check_chunk_encoder(source)
        model.base_model.tokenizer = source.tokenizer
    else:
        hate = args.model_type == "hate"
        model = kind.from_chunk_encoder(
            source,
            chunk_size=args.chunk_size,
            chunking=args.chunking,
            include_chunk_encoder=False,
            # HATE's windows are as long as what it learned on; positions past that it has never seen.
            **({"max_chunks": data.sequence_length - 1} if hate else {}),
            **args.fields(),
        )
    if args.attn_implementation:
        encoder = model.base_model.encoder
        (encoder.layers if args.model_type == "hate" else encoder).set_attn_implementation(args.attn_implementation)
    return model


def main() -> None:
    kind = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    kind.add_argument("--model_type")
    if kind.parse_known_args()[0].model_type == "cdlm":  # reads documents as they are, with options of its own
        cdlm_pretraining.main()
        return
    parser = HfArgumentParser((ModelArguments, ObjectiveArguments, DataArguments, PretrainingArguments))
    model_args, objective_args, data_args, args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    set_seed(args.seed)

    # 1. The frozen encoder, and the model over vectors; the encoder itself stays out of training. Whatever would stop
    # the run later is looked at before hours of encoding.
    source = load_chunk_encoder(model_args.chunk_encoder, model_args.chunk_encoder_name)
    if model_args.attn_implementation:
        source.encoder.model.set_attn_implementation(model_args.attn_implementation)
    hate = model_args.model_type == "hate"
    contrastive = objective_args.objective != "masked"
    model = new_model(model_args, objective_args, data_args, source)
    rule = model.config.chunking_rule()
    specials = model.config.special_positions
    positions = model.config.window()[0] + specials
    if not contrastive and data_args.sequence_length > positions:
        raise ValueError(
            f"--sequence_length {data_args.sequence_length} is above the {positions} positions of "
            f"{model_args.model or source.name}; give at most {positions}."
        )
    if contrastive and objective_args.max_segment > positions - specials:
        raise ValueError(
            f"--max_segment {objective_args.max_segment} is above the {positions - specials} chunks that a window of "
            f"{model_args.model or source.name} holds; give at most {positions - specials}."
        )
    masking = DataCollatorForVectorMasking(data_args.masking_probability, data_args.mask_share, data_args.random_share)

    # 2. The corpus of chunk vectors.
    # Beside the model's folder, not in it: --push_to_hub uploads what is in there.
    corpus_dir = Path(data_args.corpus_dir or f"{Path(args.output_dir)}-corpus")
    if data_args.train_file or data_args.dataset_name or not (corpus_dir / "manifest.json").exists():
        # Every process encodes its shards, on whatever machine it is; the first one closes the corpus.
        int8 = model_args.encoder_dtype == "int8"
        shards = write_shards(
            documents_of(data_args),
            in_int8(source, data_args, rule, corpus_dir / "int8_encoder", args) if int8 else source,
            rule,
            corpus_dir,
            dtype=torch.float32 if int8 else getattr(torch, model_args.encoder_dtype),
            device=args.device,
            characters_per_shard=data_args.characters_per_shard,
            num_workers=args.dataloader_num_workers or None,
            compile=model_args.compile_encoder,
            cache_dir=data_args.cache_dir,
            process_index=args.process_index,
            num_processes=args.world_size,
        )
        PartialState().wait_for_everyone()
        with args.main_process_first(local=False, desc="closing the corpus"):
            finish_corpus(corpus_dir, shards)
    corpus = VectorCorpus(corpus_dir)
    logger.info("%r", corpus)
    if not args.do_train:
        return
    corpus.check_model(model.config)

    # 3. Sequences or segments, and masks.
    train_documents: np.ndarray | None = None  # all of either corpus
    eval_documents: np.ndarray | None = None
    evaluation = corpus
    if data_args.validation_corpus_dir:
        evaluation = VectorCorpus(data_args.validation_corpus_dir)
        evaluation.check_model(model.config)
    else:
        least = 2 if contrastive else 1  # segments of one document alone are not compared
        train_documents, eval_documents = split(corpus, data_args.validation_share, args.seed, least)
    if model_args.whiten_chunks:
        chosen = range(len(corpus)) if train_documents is None else train_documents
        model.base_model.fit_whitening(corpus[int(number)].vectors for number in chosen)

    def dataset(corpus: VectorCorpus, documents: np.ndarray | None) -> Any:
        if contrastive:
            return SegmentPairDataset(corpus, **objective_args.segments(), documents=documents, seed=args.seed)
        sequences = DocumentVectorDataset if hate else PackedVectorDataset
        return sequences(corpus, data_args.sequence_length, documents, seed=args.seed)

    collator: Any = masking
    if contrastive:
        collator = objective_args.collator(masking)
    train_dataset = dataset(corpus, train_documents)
    eval_dataset = None
    if eval_documents is None or len(eval_documents):
        eval_dataset = dataset(evaluation, eval_documents)
    else:
        args.eval_strategy, args.eval_on_start = "no", False
    baseline = None
    if eval_dataset is not None and args.should_log and not contrastive:
        baseline = context_mean_baseline(
            (eval_dataset[i] for i in range(len(eval_dataset))),
            masking,
            args.per_device_eval_batch_size,
            model.base_model.prepare_chunks,
        )
        logger.info("Mean of the context on the evaluation set: %s", json.dumps(baseline))

    # 4. Training.
    def card(trainer: Trainer) -> None:
        masked = f"{model.config.loss} over {data_args.masking_probability:.0%} of the vectors"
        recipe = {
            **(
                objective_args.facts(masked, len(train_dataset))
                if contrastive
                else {
                    "objective": masked,
                    "sequences": f"{len(train_dataset)} of at most {data_args.sequence_length} positions",
                }
            ),
            "batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
            "optimizer_steps": trainer.state.max_steps,
            **{key: getattr(args, key) for key in ("learning_rate", "weight_decay", "warmup_steps", "seed")},
            "lr_scheduler_type": str(args.lr_scheduler_type.value),
            "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
            "device": str(args.device),
        }
        name = args.hub_model_id or Path(args.output_dir).name
        write_pretraining_card(
            args.output_dir, name, model.config, corpus.manifest, recipe, trainer.state.log_history, baseline
        )

    trainer = (SegmentPairTrainer if contrastive else MaskedVectorTrainer)(
        model=model,
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=collator,
        card=card,
    )
    trainer.train_to_the_end()
    if eval_dataset is not None:
        trainer.log_metrics("eval", metrics := trainer.evaluate())
        trainer.save_metrics("eval", metrics)

    # 5. A checkpoint that needs nothing else, unless it is wanted small: frozen encoder inside, card beside it.
    if model_args.include_chunk_encoder:
        model.base_model.attach_chunk_encoder(source)
    if model_args.save_dtype != "float32":
        trainer.save_dtype = getattr(torch, model_args.save_dtype)
    trainer.save_model()
    trainer.create_model_card()
    if args.push_to_hub:
        trainer.push_to_hub()


if __name__ == "__main__":
    main()
