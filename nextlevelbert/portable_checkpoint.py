"""Checkpoints that open everywhere: with this package, with sentence-transformers, and by `trust_remote_code`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .sentence_transformer import write_sentence_transformer_files

# What `save_pretrained(push_to_hub=True)` hands on; what `from_pretrained` has to read the tokenizer with, too.
_HUB_ARGUMENTS = ("repo_id", "commit_message", "private", "token", "revision", "create_pr", "tags", "max_shard_size")
_LOADING_ARGUMENTS = ("revision", "token", "cache_dir", "subfolder", "local_files_only", "force_download")


class PortableCheckpointMixin:
    """`from_pretrained` and `save_pretrained` of a family of document models; stands before `PreTrainedModel`."""

    # Every class of the family by its auto class, whichever of them is saved.
    family_auto_map: dict[str, str] = {}

    if TYPE_CHECKING:  # what the model class brings
        config: Any
        base_model: Any
        push_to_hub: Any

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As `PreTrainedModel.from_pretrained`; remembers where from, because the tokenizer is read on first use."""
        loaded_with = {key: kwargs[key] for key in _LOADING_ARGUMENTS if kwargs.get(key) is not None}
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
        tokenizer = self.base_model.find_tokenizer()
        self.config.auto_map = dict(self.family_auto_map)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)  # type: ignore[misc]
        if not is_main_process:
            return
        write_sentence_transformer_files(save_directory, tokenizer)
        if push:
            self.push_to_hub(hub.pop("repo_id", Path(save_directory).name), **hub)
