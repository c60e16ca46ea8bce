"""Checkpoints that open everywhere: with this package, with sentence-transformers, and by `trust_remote_code`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedConfig

from .sentence_transformer import write_sentence_transformer_files

# What `save_pretrained(push_to_hub=True)` hands on; what `from_pretrained` has to read the tokenizer with, too.
_HUB_ARGUMENTS = ("repo_id", "commit_message", "private", "token", "revision", "create_pr", "tags", "max_shard_size")
LOADING_ARGUMENTS = ("revision", "token", "cache_dir", "subfolder", "local_files_only", "force_download")


class PortableCheckpointMixin:
    """`from_pretrained` and `save_pretrained` of a family of document models; stands before `PreTrainedModel`."""

    # Every class of the family by its auto class, whichever of them is saved.
    family_auto_map: dict[str, str] = {}
    made_by = "from_encoder"  # what makes a new model of an encoder

    if TYPE_CHECKING:  # what the model class brings
        config: Any
        name_or_path: str
        base_model: Any
        eval: Any
        push_to_hub: Any

    _tokenizer: Any = None  # of the base model
    _loaded_with: Mapping[str, Any] = MappingProxyType({})  # revision, token and the like of `from_pretrained`

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As `PreTrainedModel.from_pretrained`; remembers where from, because the tokenizer is read on first use.

        Raises:
            ValueError: for a checkpoint of another kind of model.
        """
        loaded_with = {key: kwargs[key] for key in LOADING_ARGUMENTS if kwargs.get(key) is not None}
        if kwargs.get("config") is None and pretrained_model_name_or_path is not None:
            stored, _ = PreTrainedConfig.get_config_dict(pretrained_model_name_or_path, **loaded_with)
            ours = cls.config_class.model_type  # type: ignore[attr-defined]
            if (kind := stored.get("model_type", ours)) != ours:
                raise ValueError(
                    f"{str(pretrained_model_name_or_path)!r} is a {kind}, no {ours}. To make a new model of an "
                    f"encoder use {cls.__name__}.{cls.made_by}."
                )
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)  # type: ignore[misc]
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with output_loading_info=True
        model.base_model._loaded_with = loaded_with
        return loaded

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any) -> None:
        """Saves a folder that opens with this package, with `SentenceTransformer`, and with `trust_remote_code`.

        Beside weights and configuration it holds the tokenizer, the modelling code, and three small files
        that tell sentence-transformers to take `pooler_output`. Arguments as in `PreTrainedModel`.
        """
        push = kwargs.pop("push_to_hub", False)
        hub = {key: kwargs.pop(key) for key in _HUB_ARGUMENTS if push and key in kwargs}
        tokenizer = self._find_tokenizer()
        self.config.auto_map = dict(self.family_auto_map)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)  # type: ignore[misc]
        if not is_main_process:
            return
        write_sentence_transformer_files(save_directory, tokenizer)
        if push:
            self.push_to_hub(hub.pop("repo_id", Path(save_directory).name), **hub)

    @property
    def tokenizer(self) -> Any:
        """The stock tokenizer: read from the folder or Hub name that the model was loaded from."""
        base = self.base_model
        if base._tokenizer is None:
            source = base.name_or_path
            try:
                base._tokenizer = AutoTokenizer.from_pretrained(source, config=base.config, **base._loaded_with)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"Found no tokenizer beside the model (looked in {source!r}). Set model.tokenizer to that of the "
                    "encoder it was made from; save_pretrained then saves it with the model."
                ) from error
        return base._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self.base_model._tokenizer = tokenizer

    def _find_tokenizer(self) -> Any:
        """The tokenizer, or None for a model that never had one (built from a configuration, fed with vectors)."""
        base = self.base_model
        if base._tokenizer is None:
            folder = Path(base.name_or_path)
            if not base.name_or_path or (folder.is_dir() and not (folder / "tokenizer_config.json").exists()):
                return None
        try:
            return self.tokenizer
        except ValueError as error:  # what was loaded from is gone; the weights must be saved all the same
            warnings.warn(f"{error} Saved without a tokenizer.", stacklevel=3)
            return None


def store_weights_as(folder: str | Path, dtype: torch.dtype) -> None:
    """Rewrites the weights of a saved float32 model in half the room; it still opens in float32.

    Loading follows the ``dtype`` in ``config.json``, which stays as it is.
    """
    for path in Path(folder).glob("*.safetensors"):
        weights = {name: values.to(dtype) if values.is_floating_point() else values
                   for name, values in load_file(path).items()}  # fmt: skip
        save_file(weights, path, metadata={"format": "pt"})
