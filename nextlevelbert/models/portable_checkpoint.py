"""Checkpoints that open everywhere: with this package, with sentence-transformers, and by `trust_remote_code`.

sentence-transformers opens them with its own `Transformer` module and nothing else. Since its version 6, a folder
that names any other module class needs `trust_remote_code`; ours never does: `SentenceTransformer(path)` after
`import nextlevelbert`. Its `encode` tokenises a whole document and calls the model's `forward`, which chunks, encodes
and pools.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.dynamic_module_utils import custom_object_save

from .backbones import read_tokenizer
from .input_checks import check_weights
from .saved_files import begin_sums, opening, update_sums, write_sums

# The limit in a saved tokenizer, which sentence-transformers shows as `max_seq_length` and cuts at. No document gets
# there: characters are counted in int32. transformers has no value for "no limit": it makes 1e30 of None.
LONGEST_DOCUMENT = 2**31 - 1

# Arguments of `from_pretrained` that the tokenizer has to be read with, too.
LOADING_ARGUMENTS = ("revision", "token", "cache_dir", "subfolder", "local_files_only", "force_download")
# Arguments of `save_pretrained(push_to_hub=True)` that go to the Hub.
_HUB_ARGUMENTS = ("repo_id", "commit_message", "private", "token", "revision", "create_pr", "tags", "max_shard_size")
# Those of earlier releases of transformers, which other libraries still give.
_NO_LONGER = {"safe_serialization", "save_function"}

# Query and value, or all three in one, by the names that encoders of transformers give them.
_ATTENTION_PROJECTIONS = {"query", "value", "q", "v", "q_lin", "v_lin", "q_proj", "v_proj", "Wqkv", "qkv_proj"}

_SENTENCE_TRANSFORMER_FILES: dict[str, object] = {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        "module_output_name": "sentence_embedding",
    },
    "config_sentence_transformers.json": {
        "model_type": "SentenceTransformer",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    },
}


class PortablePreTrainedModel(PreTrainedModel):
    """Loading and saving, the same for all classes of all families.

    The classes have no `_auto_class`: `save_pretrained` writes the code itself, so that classes without an auto class
    have theirs in the checkpoint as well.
    """

    # Every auto class that can open a checkpoint of the family, whichever of its classes is saved.
    family_auto_map: dict[str, str] = {}
    made_by = "from_encoder"  # the method that makes a new model from an encoder

    _tokenizer: PreTrainedTokenizerBase | None = None  # of the base model
    _loaded_with: Mapping[str, Any] = MappingProxyType({})  # revision, token and so on, as given to `from_pretrained`

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As `PreTrainedModel.from_pretrained`; remembers the source, because the tokenizer is read on first use.

        Raises:
            ValueError: for a checkpoint of another kind of model, with NaN or infinity in a weight, or with files
                that are missing, damaged or not what was saved (named).
        """
        source = pretrained_model_name_or_path
        loaded_with = {key: kwargs[key] for key in LOADING_ARGUMENTS if kwargs.get(key) is not None}
        if source is None:
            return super().from_pretrained(source, *args, **kwargs)
        with opening(source, loaded_with, code=cls.__module__.startswith("transformers_modules.")):
            if kwargs.get("config") is None:
                stored, _ = PreTrainedConfig.get_config_dict(source, **loaded_with)
                kwargs |= cls._read_as(source, stored, kwargs)
            loaded = super().from_pretrained(source, *args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with output_loading_info=True
        check_weights(model, source)
        model.base_model._loaded_with = loaded_with
        return loaded

    @classmethod
    def _read_as(cls, source: Any, stored: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Further arguments that open a checkpoint with the configuration `stored`: none, for one of the family.

        Raises:
            ValueError: for a checkpoint of another kind of model.
        """
        ours = cls.config_class.model_type
        if (kind := stored.get("model_type", ours)) != ours:
            raise ValueError(
                f"{str(source)!r} is a {kind}, not a {ours}. To make a new model from an encoder, use "
                f"{cls.__name__}.{cls.made_by}."
            )
        return {}

    @staticmethod
    def _finalize_model_loading(model: Any, load_config: Any, loading_info: Any) -> Any:
        """As in transformers, which here allocates and draws at random what the file does not hold."""
        model._check_claims(loading_info, load_config.ignore_mismatched_sizes)
        return PreTrainedModel._finalize_model_loading(model, load_config, loading_info)

    def _check_claims(self, loading_info: Any, ignore_sizes: bool) -> None:
        """Raises a ValueError if the configuration claims other sizes, or encoder layers that the file does not hold.

        New heads and poolings may be missing: they are trained.
        """
        prefix = "" if self.base_model is self else f"{self.base_model_prefix}."
        parts = tuple(f"{prefix}{part}." for part in ("encoder", "chunk_encoder", "embeddings"))
        claims = [
            f"{name} {list(claimed)} instead of {list(held)}"
            for name, held, claimed in loading_info.mismatched_keys
            if name.startswith(parts) or not ignore_sizes
        ]
        claims += [f"{name}, which is not there" for name in loading_info.missing_keys if name.startswith(parts)]
        if claims:
            raise ValueError(
                f"The configuration of {self.name_or_path or type(self).__name__!r} does not fit its weights: it "
                f"claims {'; '.join(sorted(claims)[:3])}{'; …' if len(claims) > 3 else ''}. Get the checkpoint again; "
                "to replace heads by others, pass ignore_mismatched_sizes=True."
            )

    @classmethod
    def check_fields(cls, arguments: Mapping[str, Any]) -> None:
        """Raises a ValueError for an argument that is no field of the configuration; transformers would keep it."""
        if unknown := sorted(arguments.keys() - cls._config_fields() - {"attn_implementation"}):
            raise ValueError(
                f"{cls.made_by} takes fields of {cls.config_class.__name__}, not {', '.join(unknown)}. The fields are "
                f"{', '.join(sorted(cls._config_fields() - set(PreTrainedConfig.__dataclass_fields__)))}, and those "
                "of every configuration, such as num_labels and problem_type."
            )

    @classmethod
    def split_arguments(cls, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Splits the keyword arguments of `from_encoder` into those for loading and fields of the configuration.

        Raises:
            ValueError: for an argument that is neither.
        """
        allowed = {*cls._config_fields(), "attn_implementation", *LOADING_ARGUMENTS}
        if unknown := sorted(arguments.keys() - allowed):
            raise ValueError(
                f"from_encoder takes fields of {cls.config_class.__name__} and loading arguments "
                f"({', '.join(LOADING_ARGUMENTS)}), not {', '.join(unknown)}. Weights are loaded in float32 on the "
                "CPU; use model.to(...) for another dtype or device."
            )
        loading = {key: value for key, value in arguments.items() if key in LOADING_ARGUMENTS}
        return loading, {key: value for key, value in arguments.items() if key not in LOADING_ARGUMENTS}

    @classmethod
    def _config_fields(cls) -> set[str]:
        """Fields of the configuration that can be given for a new model; the dtype is that of the weights."""
        return {"num_labels", *cls.config_class.__dataclass_fields__} - {"dtype"}

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any) -> None:
        """Saves a folder that opens with this package, with `SentenceTransformer`, and with `trust_remote_code`.

        Beside weights and configuration it holds the tokenizer, the modelling code, three small files that tell
        sentence-transformers to take `pooler_output`, and check sums of all of them. Arguments as in
        `PreTrainedModel`.

        Raises:
            TypeError: for an argument that no one takes, before anything is written.
        """
        own = inspect.signature(PreTrainedModel.save_pretrained).parameters.keys() - {"self", "kwargs"}
        known = {*own, *_HUB_ARGUMENTS, *_NO_LONGER}
        if unknown := sorted(kwargs.keys() - known):
            raise TypeError(
                f"save_pretrained takes {', '.join(sorted(known - _NO_LONGER))}, not {', '.join(unknown)}."
            )
        push = kwargs.pop("push_to_hub", False)
        hub = {key: kwargs.pop(key) for key in _HUB_ARGUMENTS if push and key in kwargs}
        tokenizer = self._find_tokenizer()
        self.config.auto_map = dict(self.family_auto_map)
        if is_main_process:
            begin_sums(save_directory)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if not is_main_process:
            return
        if not self.is_remote_code():  # otherwise opened by `trust_remote_code`, and transformers has written the code
            custom_object_save(self, save_directory)
        _write_sentence_transformer_files(save_directory, tokenizer)
        write_sums(save_directory)
        if push:
            self.push_to_hub(hub.pop("repo_id", Path(save_directory).name), **hub)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The stock tokenizer, read from the folder or Hub name that the model was loaded from."""
        base = self.base_model
        if base._tokenizer is None:
            source = base.name_or_path
            try:
                base._tokenizer = read_tokenizer(source, config=base.config, **base._loaded_with)
            except ValueError as error:
                raise ValueError(
                    f"Found no tokenizer next to the model, or one that is damaged (looked in {source!r}). "
                    "Set model.tokenizer to that of the encoder it was made from; save_pretrained then saves "
                    "it with the model."
                ) from error
        return base._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.base_model._tokenizer = tokenizer

    def _find_tokenizer(self) -> PreTrainedTokenizerBase | None:
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

    def warn_if_padding_and_no_attention_mask(self, input_ids: Any, attention_mask: Any) -> None:
        """As in transformers, which looks at the first and the last token, where there are any."""
        if input_ids.numel():
            super().warn_if_padding_and_no_attention_mask(input_ids, attention_mask)

    def lora_targets(self) -> dict[str, Any]:
        """Arguments of peft's `LoraConfig` that suit the model, for which peft itself has no defaults.

        Adapters go to the query and value projections of the attention; heads are trained whole, and a frozen chunk
        encoder gets no adapter: ``get_peft_model(model, LoraConfig(r=8, **model.lora_targets()))``.

        Raises:
            ValueError: for a backbone without layers or with other names of the projections.
        """
        linear = [name for name, layer in self.named_modules() if isinstance(layer, torch.nn.Linear)]
        ends = {name.rpartition(".")[2] for name in linear if "chunk_encoder." not in name}
        targets = sorted(ends & _ATTENTION_PROJECTIONS)
        if not targets:
            raise ValueError(
                f"{type(self).__name__} has no linear layer named {', '.join(sorted(_ATTENTION_PROJECTIONS))}. Give "
                "LoraConfig target_modules of your own."
            )
        return {
            "target_modules": targets,
            "modules_to_save": self.modules_to_train_whole(),
            "exclude_modules": r".*\bchunk_encoder\b.*",
        }

    def modules_to_train_whole(self) -> list[str]:
        """Names of the modules that are trained whole beside an adapter, because they start at random: the heads."""
        if self.base_model is self:
            return []
        heads = [(name, child) for name, child in self.named_children() if child is not self.base_model]
        return [name for name, child in heads if next(child.parameters(), None) is not None]


def _write_sentence_transformer_files(folder: str | Path, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Adds to a saved model what `SentenceTransformer(folder)` needs: three small files and the tokenizer.

    The tokenizer is saved with a limit that no document reaches, because sentence-transformers cuts texts there.
    """
    for name, content in _SENTENCE_TRANSFORMER_FILES.items():
        (Path(folder) / name).write_text(json.dumps(content, indent=2) + "\n")
    if tokenizer is not None:
        limit, tokenizer.model_max_length = tokenizer.model_max_length, LONGEST_DOCUMENT
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = limit


def store_weights_as(folder: str | Path, dtype: torch.dtype) -> None:
    """Rewrites the weights of a saved float32 model in half the room; it still opens in float32.

    Loading follows the ``dtype`` in ``config.json``, which stays as it is.
    """
    files = list(Path(folder).glob("*.safetensors"))
    for path in files:
        weights = {name: values.to(dtype) if values.is_floating_point() else values
                   for name, values in load_file(path).items()}  # fmt: skip
        save_file(weights, path, metadata={"format": "pt"})
    update_sums(folder, [path.name for path in files])
