"""Fine-tuning on stored vectors: NextLevelBERT, HATE and baselines over chunk vectors, from task to `PreparedTask`."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForMultipleChoice, AutoModelForSequenceClassification

from ...finetuning.arguments import BASELINES, VECTOR_MODELS, FinetuningArguments, ModelArguments, TaskArguments
from ...finetuning.trainer import PreparedTask, copy_adapter, head_config, with_lora
from ...models.chunk_encoder import LoadedChunkEncoder, load_chunk_encoder, weights_fingerprint
from ...models.modeling_hate import HateForSequenceClassification, HateModel
from ...models.modeling_nextlevelbert import (
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from ...training.cards import CardText
from .baselines import ChunkMeanClassifier
from .data import TaskData
from .vectors import TaskVectorDataset, TaskVectors, default_cache, encode_task

logger = logging.getLogger(__name__)

# Of each family, what stands for the bare model and for the auto classes.
_CLASSES: dict[str, dict[Any, Any]] = {
    "nextlevelbert": {
        None: NextLevelBertModel,
        AutoModelForSequenceClassification: NextLevelBertForSequenceClassification,
        AutoModelForMultipleChoice: NextLevelBertForMultipleChoice,
    },
    "hate": {None: HateModel, AutoModelForSequenceClassification: HateForSequenceClassification},
}
_NAMES = {
    "nextlevelbert": "[NextLevelBERT](https://arxiv.org/abs/2402.17682)",
    "hate": "HATE (Hierarchical Attention-based Text Encoder)",
}


def load(arguments: ModelArguments, task_class: Any = None, **config: Any) -> Any:
    """The model with a head, or the bare one; `untrained` and the baselines are made around the chunk encoder.

    Args:
        arguments: which model.
        task_class: an ``AutoModelFor…``, or None for the bare model.
        config: fields of the configuration.

    Raises:
        ValueError: if there is no such model, or it is none that reads vectors or has no such head.
    """
    if arguments.model in ("untrained", *BASELINES):
        source = load_chunk_encoder(arguments.chunk_encoder, arguments.chunk_encoder_name)
        cls = _CLASSES[arguments.model_type][task_class]
        return cls.from_chunk_encoder(source, chunk_size=arguments.chunk_size, **config)
    words = f"Otherwise --model is one of untrained, {', '.join(BASELINES)}."
    try:
        kind = AutoConfig.from_pretrained(arguments.model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--model {arguments.model!r} is no folder with a checkpoint, and not on the Hub. {words}"
        ) from error
    if kind in ("chunkbert", "bert-al"):
        raise ValueError(f"--model {arguments.model!r} is a {kind}; add --model_type {kind}.")
    if kind not in VECTOR_MODELS or (arguments.model_type == "hate" and kind != "hate"):
        wanted = "HATE" if arguments.model_type == "hate" else "NextLevelBERT or HATE"
        raise ValueError(f"--model {arguments.model!r} is a {kind}; give a {wanted}. {words}")
    # A checkpoint that was fine-tuned keeps its classifier where it fits, and else gets a new one.
    model = (task_class or AutoModel).from_pretrained(arguments.model, ignore_mismatched_sizes=True, **config)
    if task_class is None and model.chunk_encoder is None:  # a small checkpoint: its encoder comes from elsewhere
        folder = arguments.chunk_encoder if Path(arguments.chunk_encoder).is_dir() else None
        name = model.config.chunk_encoder_name
        model.attach_chunk_encoder(load_chunk_encoder(folder or name, arguments.chunk_encoder_name or name))
    return model


def frozen(model: Any) -> Any:
    """The same model, of which only the head learns, from the document vectors that prediction makes: no dropout."""
    model.base_model.requires_grad_(False)
    for module in model.base_model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # its configuration is saved as it was
    return model


def prepare(
    arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments, sets: dict[str, TaskData]
) -> PreparedTask:
    """Sends every distinct text through the frozen encoder, once for all epochs, seeds and models.

    Args:
        arguments: which model: a NextLevelBERT, `untrained`, or a baseline. TF-IDF needs nothing of this.
        task: where the cache of vectors is.
        args: on which device, in which process.
        sets: the task.
    """
    if arguments.model == "tfidf":
        return PreparedTask()
    train, baseline = sets["train"], arguments.model in BASELINES
    choice = train.problem_type == "multiple_choice"
    text_pair = not choice and train.examples[0].question is not None
    task_class = AutoModelForMultipleChoice if choice else AutoModelForSequenceClassification

    reader = load(arguments).to(args.device)
    if task_class not in _CLASSES[reader.config.model_type]:
        raise ValueError(f"A {reader.config.model_type} has no head for this task; give a NextLevelBERT.")
    encode = {"dtype": arguments.encoder_dtype, "cache_dir": task.cache_dir or default_cache(args.output_dir)}
    with args.main_process_first(local=False, desc="encoding"):  # the others read what the first one stored
        vectors = {name: encode_task(reader, data, **encode) for name, data in sets.items()}
    if arguments.model == "sbert":
        vectors = {name: TaskVectors([d[:1] for d in v.documents], v.pairs) for name, v in vectors.items()}
    # What is made around a chunk encoder has random special vectors, so it is told by that encoder.
    made_here = baseline or arguments.model == "untrained"
    weights = reader.get_chunk_encoder().fingerprint() if made_here else weights_fingerprint(reader)
    source = reader.cpu().detach_chunk_encoder()
    config = {} if choice else {**head_config(train), "text_pair": text_pair}
    hidden_size = reader.config.chunk_hidden_size

    def new_model() -> Any:
        if baseline:
            classes = len(train.label_names or ()) or 1
            return ChunkMeanClassifier(hidden_size, train.problem_type, classes, text_pair)
        model = load(arguments, task_class, **config)
        if model.base_model.chunk_encoder is not None:  # stored vectors come in; it goes into the final model
            model.base_model.detach_chunk_encoder()
        if arguments.freeze_encoder:
            return frozen(model)
        if arguments.lora:
            return with_lora(model, arguments.lora_r, arguments.lora_alpha, arguments.lora_target_modules)
        return model

    prepared = PreparedTask(
        {name: TaskVectorDataset(sets[name], vectors[name]) for name in vectors}, new_model, weights
    )
    if baseline:
        return prepared
    if arguments.lora:
        prepared.publish = partial(copy_adapter, tokenizer=source.tokenizer, local=arguments.local)
    else:
        prepared.publish = partial(_publish, task_class=task_class, source=source)
    labels = len(train.label_names or ()) or 1
    prepared.card = CardText(
        name=_NAMES[reader.config.model_type],
        reads="It reads documents of any length.",
        limits=[
            "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as its vector."
        ],
        tags=[reader.config.model_type],
        settings={"chunk_size": reader.config.chunk_size},
        uncounted=" (the frozen chunk encoder not counted)",
        base_arguments="" if choice else f", num_labels={labels}, text_pair={text_pair}",
    )
    return prepared


def _publish(folder: Path, output: Path, *, task_class: Any, source: LoadedChunkEncoder) -> None:
    """The model of a seed's folder with its chunk encoder and tokenizer."""
    model = task_class.from_pretrained(folder)
    model.base_model.attach_chunk_encoder(source)
    model.save_pretrained(output)
