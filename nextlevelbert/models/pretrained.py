"""Saving checkpoints that open everywhere, and the pretrained encoders that models are built
around.

A checkpoint opens with this package, by `trust_remote_code`, and with sentence-transformers, whose
own `Transformer` module it names: any other class would need `trust_remote_code` there, too.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.dynamic_module_utils import custom_object_save
from transformers.loss.loss_utils import ForSequenceClassificationLoss
from transformers.utils import output_capturing

try:
    from nextlevelbert import hub_card
except (
    ImportError
):  # a checkpoint that is opened without the package is published with transformers' own card
    hub_card: Any = None  # type: ignore[no-redef]

# The `model_max_length` of a tokenizer without a limit, which is transformers' own default: above
# 1e20 it neither truncates at the limit nor pads to it, so sentence-transformers does not either.
NO_LENGTH_LIMIT = int(1e30)

# Arguments of `from_pretrained` that the tokenizer has to be read with, too.
LOADING_ARGUMENTS = (
    "revision",
    "token",
    "cache_dir",
    "subfolder",
    "local_files_only",
    "force_download",
)
_HUB_ARGUMENTS = ("repo_id", "commit_message", "private", "token", "revision", "create_pr", "tags")

# Query and value, or all three in one, by the names that encoders of transformers give them.
_ATTENTION_PROJECTIONS = {
    "query",
    "value",
    "q",
    "v",
    "q_lin",
    "v_lin",
    "q_proj",
    "v_proj",
    "Wqkv",
    "qkv_proj",
}
# Backbones whose position table starts after the padding id, so that two rows are never used.
_OFFSET_POSITIONS = (
    "camembert",
    "data2vec-text",
    "esm",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)

_SENTENCE_TRANSFORMER_FILES: dict[str, Any] = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    ],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "module_output_name": "sentence_embedding",
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        # Overrides the limit of a tokenizer that something else wrote into the folder.
        "max_seq_length": NO_LENGTH_LIMIT,
    },
    "config_sentence_transformers.json": {
        "model_type": "SentenceTransformer",
        "similarity_fn_name": "cosine",
        "prompts": {},
        "default_prompt_name": None,
    },
}


class NextLevelPreTrainedModel(PreTrainedModel):
    """Loading and saving, the same for all classes of all families.

    The classes have no `_auto_class`: `save_pretrained` writes the code itself, for those without
    an auto class, too.
    """

    # Every auto class that can open a checkpoint of the family, whichever of its classes is saved.
    family_auto_map: dict[str, str] = {}
    made_by = "from_encoder"  # the method that makes a new model from an encoder

    _tokenizer: PreTrainedTokenizerBase | None = None  # of the base model
    _loaded_with: Mapping[str, Any] = MappingProxyType(
        {}
    )  # revision, token and so on, as given to `from_pretrained`

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As `PreTrainedModel.from_pretrained`; remembers the source, because the tokenizer is read
        on first use.
        """
        source = pretrained_model_name_or_path
        loaded_with = {key: kwargs[key] for key in LOADING_ARGUMENTS if kwargs.get(key) is not None}
        if source is not None and kwargs.get("config") is None:
            stored, _ = PreTrainedConfig.get_config_dict(source, **loaded_with)
            kwargs |= cls._read_as(source, stored, kwargs)
        loaded = super().from_pretrained(source, *args, **kwargs)
        model = (
            loaded[0] if isinstance(loaded, tuple) else loaded
        )  # a pair with output_loading_info=True
        model.base_model._loaded_with = loaded_with
        return loaded

    @classmethod
    def _read_as(
        cls, source: Any, stored: Mapping[str, Any], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Further arguments that open a checkpoint with the configuration `stored`: none, for one
        of the family.
        """
        kind = stored.get("model_type", cls.config_class.model_type)
        if kind != cls.config_class.model_type:  # transformers would draw all weights at random
            raise ValueError(
                f"{str(source)!r} is a {kind}, not a {cls.config_class.model_type}. To make a new"
                f" model from an encoder, use {cls.__name__}.{cls.made_by}."
            )
        return {}

    def save_pretrained(
        self, save_directory: str | PathLike[str], *args: Any, **kwargs: Any
    ) -> None:
        """Saves a folder that opens with this package, with `SentenceTransformer`, and with
        `trust_remote_code`.

        Beside weights and configuration it holds the tokenizer, the modelling code, and three small
        files that tell sentence-transformers to take `pooler_output`. Arguments as in
        `PreTrainedModel`.
        """
        push = kwargs.pop("push_to_hub", False)
        hub = {key: kwargs.pop(key) for key in _HUB_ARGUMENTS if push and key in kwargs}
        tokenizer = self._find_tokenizer()
        self.config.auto_map = dict(self.family_auto_map)
        trainer: Any = sys.modules.get(
            "transformers.trainer"
        )  # where someone trains; it imports much
        if (
            hub_card is not None
            and trainer is not None
            and not hasattr(trainer.Trainer, "_plain_card")
        ):
            trainer.Trainer._plain_card = trainer.Trainer.create_model_card
            trainer.Trainer.create_model_card = hub_card.card_of_trainer
        is_update = self._is_saved_in(Path(save_directory))
        super().save_pretrained(save_directory, *args, **kwargs)
        if not (args[0] if args else kwargs.get("is_main_process", True)):
            return
        if (
            not self.is_remote_code()
        ):  # otherwise opened by `trust_remote_code`, and transformers has written the code
            custom_object_save(self, save_directory)
        self._write_sentence_transformers_files(Path(save_directory), is_update=is_update)
        if tokenizer is not None:
            tokenizer.save_pretrained(save_directory)
        if push:
            self.push_to_hub(hub.pop("repo_id", Path(save_directory).name), **hub)

    def _is_saved_in(self, folder: Path) -> bool:
        """Returns whether the folder holds a checkpoint of this family, which a save replaces."""
        config_file = folder / "config.json"
        if not config_file.is_file():
            return False
        stored = json.loads(config_file.read_text(encoding="utf-8"))
        return stored.get("model_type") == self.config.model_type

    def _write_sentence_transformers_files(self, folder: Path, is_update: bool) -> None:
        """Writes what sentence-transformers opens the folder by, and keeps what was set there.

        sentence-transformers writes `config_sentence_transformers.json` (prompts, similarity)
        before the model and the other two files after it, so the first is never overwritten.

        Args:
            folder: the folder of the checkpoint.
            is_update: whether the folder held a checkpoint of this family before. Only then its
                `modules.json` and `sentence_bert_config.json` belong to this model.
        """
        for name, content in _SENTENCE_TRANSFORMER_FILES.items():
            path = folder / name
            is_first = name == "config_sentence_transformers.json"
            if path.exists() and (is_first or is_update):
                stored = json.loads(path.read_text(encoding="utf-8"))
            else:
                stored = copy.deepcopy(content)
            if name == "sentence_bert_config.json":
                stored = content | stored
                if hasattr(self.config, "max_position_embeddings"):
                    # The model itself has a limit, at which sentence-transformers truncates.
                    del stored["max_seq_length"]
            path.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")

    def _upload_modified_files(
        self, working_dir: Any, repo_id: str, *args: Any, **kwargs: Any
    ) -> Any:
        if hub_card is not None:
            hub_card.complete_card(self, working_dir, repo_id)
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The stock tokenizer, read from the folder or Hub name that the model was loaded from."""
        base = self.base_model
        if base._tokenizer is None:
            try:
                base._tokenizer = load_tokenizer(
                    base.name_or_path, config=base.config, **base._loaded_with
                )
            except (
                Exception
            ) as error:  # tokenizers raises nothing more exact for a file that is cut off
                raise ValueError(
                    f"No tokenizer can be read in {base.name_or_path!r} ({error}). Set"
                    " model.tokenizer to that of its encoder; save_pretrained then saves it with"
                    " the model."
                ) from error
        return base._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: PreTrainedTokenizerBase | None) -> None:
        """Sets the tokenizer; of one with a length limit, a copy without it."""
        if tokenizer is not None and tokenizer.model_max_length < NO_LENGTH_LIMIT:
            tokenizer = copy.deepcopy(tokenizer)
            tokenizer.model_max_length = NO_LENGTH_LIMIT
        self.base_model._tokenizer = tokenizer

    def _find_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer, or None for a model that never had one (built from a configuration, fed
        with vectors).
        """
        base = self.base_model
        if base._tokenizer is None:
            folder = Path(base.name_or_path)
            if not base.name_or_path or (
                folder.is_dir() and not (folder / "tokenizer_config.json").exists()
            ):
                return None
        try:
            return self.tokenizer
        except (
            ValueError
        ) as error:  # what was loaded from is gone; the weights must be saved all the same
            warnings.warn(f"{error} Saved without a tokenizer.", stacklevel=3)
            return None

    def __getstate__(self) -> dict[str, Any]:
        """Returns what is pickled or copied, without the hooks of transformers' output capture.

        The hooks are local functions, which cannot be pickled. transformers installs them again if
        hidden states or attentions are asked for.
        """
        return without_capturing_hooks(self, {}).__dict__

    def lora_targets(self) -> dict[str, Any]:
        """Arguments of peft's `LoraConfig`: ``get_peft_model(model, LoraConfig(r=8,
        **model.lora_targets()))``.

        Adapters go to the query and value projections of the attention; heads are trained whole,
        and a frozen chunk encoder gets no adapter. A ValueError says where there are no such
        projections.
        """
        linear = [
            name for name, layer in self.named_modules() if isinstance(layer, torch.nn.Linear)
        ]
        ends = {name.rpartition(".")[2] for name in linear if "chunk_encoder." not in name}
        if not (targets := sorted(ends & _ATTENTION_PROJECTIONS)):
            raise ValueError(
                f"{type(self).__name__} has no linear layer named {sorted(_ATTENTION_PROJECTIONS)}."
            )
        heads = self.modules_to_train_whole()
        return {
            "target_modules": targets,
            "modules_to_save": heads,
            "exclude_modules": r".*\bchunk_encoder\b.*",
        }

    def modules_to_train_whole(self) -> list[str]:
        """The heads: modules that are trained whole beside an adapter, because they start at
        random.
        """
        heads = [] if self.base_model is self else self.named_children()
        return [
            name for name, head in heads if head is not self.base_model and [*head.parameters()]
        ]


def without_capturing_hooks(module: nn.Module, twins: dict[int, nn.Module]) -> nn.Module:
    """Copies a tree of modules without the hooks with which transformers captures outputs.

    Args:
        module: the root; the copy shares its tensors and settings.
        twins: copies made so far, by the `id` of the original, so that shared modules stay shared.
    """
    if id(module) in twins:
        return twins[id(module)]

    twin = object.__new__(type(module))
    twins[id(module)] = twin
    twin.__dict__.update(module.__dict__)
    twin.__dict__.pop("_output_capturing_hooks_installed", None)
    hooks = {
        key: hook
        for key, hook in module._forward_hooks.items()
        if getattr(hook, "__module__", None) != output_capturing.__name__
    }
    twin.__dict__["_forward_hooks"] = OrderedDict(hooks)
    twin.__dict__["_modules"] = {
        name: None if child is None else without_capturing_hooks(child, twins)
        for name, child in module._modules.items()
    }
    return twin


def encoders_of_package() -> Any:
    """The module that opens encoders and makes new models of them; a checkpoint does without it."""
    try:
        from nextlevelbert import encoders
    except ImportError as error:
        raise ImportError(
            "To open an encoder by its name or make a new model: pip install nextlevelbert"
        ) from error
    return encoders


def token_mask(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """The mask of token ids ``[B, T]`` as bool ``[B, T]``, all true where none is given."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    if input_ids.ndim != 2 or mask.shape != input_ids.shape:
        raise ValueError(
            f"Give input_ids [B, T] and an attention_mask like it; got {[*input_ids.shape]} and"
            f" {[*mask.shape]}."
        )
    return mask.bool()


def classification_loss(logits: torch.Tensor, labels: torch.Tensor, config: Any) -> torch.Tensor:
    """Transformers' loss for one label, several, or values; zero (with a gradient path) where all
    labels are -100.
    """
    if labels.dtype == torch.long and (labels == -100).all():
        return logits.sum() * 0.0
    return ForSequenceClassificationLoss(labels=labels, pooled_logits=logits, config=config)


def single_label_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of ``[N, K]`` and class numbers ``[N]``: the mean over rows whose label is not
    -100, or zero.
    """
    total = F.cross_entropy(logits.float(), labels, reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)


def labelled_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of ``[B, P]``: the mean over rows of the mean over their labels (-100:
    none), or zero.

    Row by row, so that it does not depend on how processes and steps share out the rows.
    """
    known = labels != -100
    losses = F.binary_cross_entropy_with_logits(
        logits.float(), labels.clamp(min=0).float(), reduction="none"
    )
    counts = known.sum(dim=1)  # [B]
    return ((losses * known).sum(dim=1) / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(
        min=1
    )


def backbone_from_config(config: PreTrainedConfig) -> PreTrainedModel:
    """A new encoder in torch's default dtype, without the pooler, which no model here uses."""
    dtype = torch.get_default_dtype()
    try:
        return AutoModel.from_config(config, dtype=dtype, add_pooling_layer=False)
    except TypeError:  # architectures without a pooler do not know the argument
        return AutoModel.from_config(config, dtype=dtype)


def load_tokenizer(name_or_path: str | PathLike[str], **arguments: Any) -> PreTrainedTokenizerBase:
    """The stock tokenizer of an encoder, without its length limit, because no document is too long
    here.
    """
    tokenizer = AutoTokenizer.from_pretrained(
        name_or_path, **{"model_max_length": NO_LENGTH_LIMIT, **arguments}
    )
    if not set(tokenizer.get_vocab()) - set(
        tokenizer.all_special_tokens
    ):  # transformers makes one without words
        raise ValueError(
            f"There is no tokenizer in {name_or_path!r}: tokenizer.save_pretrained(folder)"
            " saves it."
        )
    return tokenizer


def usable_positions(config: PreTrainedConfig) -> int | None:
    """Longest sequence that a backbone of this configuration can read; None where nothing limits
    it.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    return positions - 2 if config.model_type in _OFFSET_POSITIONS else positions
