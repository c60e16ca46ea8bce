"""Saving and opening checkpoints: files, tokenizers, uploads and arguments of loading.

A checkpoint opens in three ways: with this package, with `trust_remote_code`, and with
sentence-transformers. It names sentence-transformers' own `Transformer` module, because
sentence-transformers loads no other class without the flag.
"""

import copy
import difflib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from huggingface_hub import HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import EntryNotFoundError
from torch import Tensor, nn
from transformers import (
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.dynamic_module_utils import custom_object_save
from transformers.utils import output_capturing
from transformers.utils.generic import TransformersKwargs

from .backbones import all_support, get_logger
from .files import local_path, read_json, whole_folder, write_whole
from .model_names import full_name, named_errors, safe_weights

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


# The contents of `modules.json`, `sentence_bert_config.json` and
# `config_sentence_transformers.json`, the files of sentence-transformers.
_MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
_SENTENCE_BERT_CONFIG: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "module_output_name": "sentence_embedding",
    "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
    # Overrides the limit of a tokenizer that something else wrote into the folder.
    "max_seq_length": NO_LENGTH_LIMIT,
}
# sentence-transformers puts the default prompt of a model before texts itself.
_PROMPTED = {"text": {"method": "forward_prompted", "method_output_name": "pooler_output"}}
_CONFIG_SENTENCE_TRANSFORMERS: dict[str, Any] = {
    "model_type": "SentenceTransformer",
    "similarity_fn_name": "cosine",
}

_CARD = """# {title}

This model is a `{model}` and reads whole documents. The package opens it: `pip install
nextlevelbert`, or until its first release `pip install .` in a clone.

```python
from nextlevelbert import {model}
from sentence_transformers import SentenceTransformer

model = {model}.from_pretrained("{name}")
model = SentenceTransformer("{name}")  # one vector for each document
```
"""
_CARD_WITHOUT_PACKAGE = """
Without the package, transformers opens it with the code that it holds:

```python
from transformers import {auto}

model = {auto}.from_pretrained("{name}", trust_remote_code=True)
```
"""
# transformers writes this where its card has nothing to say.
_EMPTY_CARD = "[More Information Needed]"


# A model of several models supports these only if all of them do.
_ATTENTION_FLAGS = (
    "_supports_sdpa",
    "_supports_flash_attn",
    "_supports_flex_attn",
    "_supports_attention_backend",
)

logger = get_logger(__name__)

# A tensor of each layer, if they are asked for; None for a layer that is not.
LayerOutputs = tuple[Tensor | None, ...] | None


class NextLevelPreTrainedModel(PreTrainedModel):
    """Loads and saves checkpoints, the same for all classes of all families.

    The classes have no `_auto_class`: `save_pretrained` writes the code itself, also for classes
    without an auto class.
    """

    # Every auto class that can open a checkpoint of the family, whichever of its classes is saved.
    family_auto_map: dict[str, str] = {}
    made_by = "from_encoder"  # the method that makes a new model from an encoder

    # The base model reads its tokenizer on first use, with the arguments of `from_pretrained`. The
    # access token is not among them: it would be pickled with the model.
    _tokenizer: PreTrainedTokenizerBase | None = None
    _loaded_with: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, config: PreTrainedConfig) -> None:
        # `PreTrainedModel` chooses the attention before there are models below to ask.
        if config.sub_configs:
            for flag in _ATTENTION_FLAGS:
                setattr(self, flag, all_support(config, flag))
        super().__init__(config)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Opens a checkpoint, like `PreTrainedModel.from_pretrained`.

        Raises:
            FileNotFoundError: if there is no checkpoint of that name.
            ValueError: for a checkpoint of another family.
        """
        name_or_path = pretrained_model_name_or_path
        if name_or_path is not None:
            name_or_path = full_name(name_or_path)

        loaded_with = {key: kwargs[key] for key in LOADING_ARGUMENTS if kwargs.get(key) is not None}
        if name_or_path is not None and kwargs.get("config") is None:
            with named_errors(name_or_path):
                stored, _ = PreTrainedConfig.get_config_dict(name_or_path, **loaded_with)
            kwargs |= cls._arguments_for(name_or_path, stored, kwargs)

        with safe_weights(name_or_path):
            loaded = super().from_pretrained(name_or_path, *args, **kwargs)

        model = loaded
        if isinstance(loaded, tuple):  # with output_loading_info=True
            model = loaded[0]

        token = loaded_with.pop("token", None)
        model.base_model._loaded_with = loaded_with
        if token is not None:  # which nothing keeps, so that the tokenizer has to be read now
            model.base_model._read_tokenizer_with(token)

        return loaded

    @classmethod
    def _arguments_for(
        cls, name_or_path: Any, stored: Mapping[str, Any], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns further arguments to open a checkpoint; families may read other models, too."""
        family = cls.config_class.model_type
        model_type = stored.get("model_type", family)
        if model_type != family:  # transformers would draw all weights at random
            raise ValueError(
                f"{str(name_or_path)!r} is a {model_type}, not a {family}. To make a new"
                f" model from an encoder, use {cls.__name__}.{cls.made_by}."
            )
        return {}

    def save_pretrained(
        self,
        save_directory: str | PathLike,
        is_main_process: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Saves a folder that opens with this package, sentence-transformers and its own code.

        Beside weights and configuration, the folder holds the tokenizer, the modelling code, three
        small files that tell sentence-transformers to take `pooler_output`, and a README if there
        is none.

        Args:
            save_directory: the folder.
            is_main_process: true in the process that writes all files except the weights.
            *args: further arguments of `PreTrainedModel.save_pretrained`.
            **kwargs: keyword arguments of `PreTrainedModel.save_pretrained`.
        """
        push = kwargs.pop("push_to_hub", False)
        hub = {}
        if push:
            hub = {key: kwargs.pop(key) for key in _HUB_ARGUMENTS if key in kwargs}

        folder = local_path(save_directory)
        name = folder.resolve().name
        if push and is_main_process:
            name, uploaded = self._prepare_upload(folder, hub)

        tokenizer = self._find_tokenizer()
        before = read_json(folder / "config.json") or {}
        self.config.auto_map = dict(self.family_auto_map)
        with whole_folder(folder) as temporary:
            super().save_pretrained(temporary, is_main_process, *args, **kwargs)
            if is_main_process:
                if not self.is_remote_code():  # whose code transformers has written
                    custom_object_save(self, temporary)
                    custom_object_save(self._class_of_package(), temporary)
                contents = self._sentence_transformers_files(folder, before)
                for file_name, content in contents.items():
                    write_whole(temporary / file_name, json.dumps(content, indent=2))
                if tokenizer is not None:
                    tokenizer.save_pretrained(temporary)
                if not (folder / "README.md").exists():
                    self._new_card(name).save(temporary / "README.md")

        if push and is_main_process:
            self._upload_modified_files(
                folder,
                name,
                uploaded,
                commit_message=hub.get("commit_message"),
                token=hub.get("token"),
                create_pr=hub.get("create_pr", False),
                revision=hub.get("revision"),
            )

    def _new_card(self, name: str) -> ModelCard:
        """Returns the card of a folder that has none."""
        encoder = getattr(self.config, "chunk_encoder_name", None)
        if "/" not in str(encoder):  # the name of a folder, which the Hub does not know
            encoder = None

        tags = []
        if self.model_tags is not None:
            tags = [*self.model_tags]

        data = ModelCardData(
            library_name="nextlevelbert",
            tags=tags,
            base_model=encoder,
        )
        text = self.card_text(name)
        return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")

    def _class_of_package(self) -> type:
        """Returns the class of this package that a subclass somewhere else extends."""
        bases = [base for base in type(self).__mro__ if base.__module__.startswith(__package__)]
        return bases[0]

    def _prepare_upload(self, folder: Path, hub: dict[str, Any]) -> tuple[str, dict[str, float]]:
        """Makes the repository of a folder that is about to be saved.

        Returns:
            Name of the repository, and the times of the files that are not to be uploaded.
        """
        folder.mkdir(parents=True, exist_ok=True)
        name = self._repository(folder, hub)
        times = self._get_files_timestamps(folder)
        try:
            ModelCard.load(name, token=hub.get("token"))
        except EntryNotFoundError:
            return name, times
        # Somebody wrote a card there, which stays.
        return name, {**times, "README.md": math.inf}

    @staticmethod
    def _repository(folder: Path, hub: dict[str, Any]) -> str:
        """Returns the name of the repository for a folder, which is created if need be."""
        url = HfApi().create_repo(
            hub.get("repo_id", folder.name),
            token=hub.get("token"),
            private=hub.get("private"),
            exist_ok=True,
        )
        return url.repo_id

    def _sentence_transformers_files(
        self, folder: Path, before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the files that sentence-transformers needs, and keeps settings made there.

        Only settings of this very model are kept: its family and its chunk encoder are those of
        the folder's earlier configuration.

        Args:
            folder: the folder of the checkpoint.
            before: configuration that the folder held before this save; empty without one.

        Returns:
            The contents of the files to write, by name. A file that is no JSON is written anew.
        """
        modules_file = folder / "modules.json"
        settings_file = folder / "config_sentence_transformers.json"
        is_update = _model_key(before) == _model_key(self.config.to_dict())
        modules: object = _MODULES
        reading = dict(_SENTENCE_BERT_CONFIG)
        if is_update:
            modules = read_json(modules_file) or _MODULES
            reading |= read_json(folder / "sentence_bert_config.json") or {}
        if getattr(self.config, "default_prompt_name", None) is not None:
            reading["modality_config"] = _PROMPTED
        if hasattr(self.config, "max_position_embeddings"):
            # The model itself has a limit, at which sentence-transformers truncates.
            del reading["max_seq_length"]

        files: dict[str, Any] = {}
        was_changed = is_update and _has_other_settings(settings_file, before)
        if not was_changed and not _is_newer(settings_file, modules_file):
            files[settings_file.name] = _settings(self.config.to_dict())

        files["sentence_bert_config.json"] = reading
        files[modules_file.name] = modules  # last, as in sentence-transformers: see `_is_newer`
        return files

    def card_text(self, name: str) -> str:
        """Returns the instructions for opening the model, in Markdown."""
        model = type(self).__name__
        card = _CARD.format(title=name.rpartition("/")[2], model=model, name=name)
        for auto, path in self.family_auto_map.items():
            if path.endswith(f".{model}"):
                card += _CARD_WITHOUT_PACKAGE.format(auto=auto, name=name)
                break
        return card

    def _upload_modified_files(
        self, working_dir: str | PathLike, repo_id: str, *args: Any, **kwargs: Any
    ) -> Any:
        # `push_to_hub` puts an empty card of transformers over the README of `save_pretrained`, and
        # has no public step after that (tests/models/test_hub.py). A card with text stays.
        path = Path(working_dir) / "README.md"
        if path.exists() and _EMPTY_CARD in path.read_text(encoding="utf-8"):
            card = ModelCard.load(path)
            card.text = self.card_text(repo_id)
            write_whole(path, str(card).encode())
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Returns the stock tokenizer, from the source that the model was loaded from."""
        base = self.base_model
        if base._tokenizer is None:
            try:
                self.tokenizer = load_tokenizer(
                    base.name_or_path, config=base.config, **base._loaded_with
                )
            except Exception as error:  # of a damaged file, tokenizers raises nothing more exact
                raise ValueError(
                    f"No tokenizer can be read in {base.name_or_path!r} ({error}). Set"
                    " model.tokenizer to that of its encoder; save_pretrained then saves it with"
                    " the model."
                ) from error

        return base._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Sets the tokenizer; a copy with the model's length limit if its own limit is another.

        Only CDLM has a limit.
        """
        limit = getattr(self.config, "max_sequence_length", NO_LENGTH_LIMIT)
        if tokenizer.model_max_length != limit:
            tokenizer = with_limit(tokenizer, limit)
        self.base_model._tokenizer = tokenizer

    def _read_tokenizer_with(self, token: str | bool) -> None:
        """Reads the tokenizer with an access token, if the source has a tokenizer."""
        arguments = {**self._loaded_with, "token": token}
        try:
            self.tokenizer = load_tokenizer(self.name_or_path, config=self.config, **arguments)
        except (OSError, ValueError):
            # A model without a tokenizer reads vectors. If it gets a text, the property
            # `tokenizer` raises the error.
            self._tokenizer = None

    def _find_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """Returns the tokenizer; None for a model that never had one.

        Such a model was built from a configuration and reads vectors.
        """
        base = self.base_model
        if base._tokenizer is None:
            folder = Path(base.name_or_path)
            has_none = folder.is_dir() and not (folder / "tokenizer_config.json").exists()
            if not base.name_or_path or has_none:
                return None

        try:
            return self.tokenizer
        except ValueError as error:  # its source is gone; the weights must be saved all the same
            logger.warning("%s Saved without a tokenizer.", error)
            return None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to pickle or copy, after it removes the hooks of transformers' capture.

        The hooks are local functions, which cannot be pickled. transformers installs them again if
        hidden states or attentions are asked for.
        """
        for module in self.modules():
            module.__dict__.pop("_output_capturing_hooks_installed", None)
            for key, hook in list(module._forward_hooks.items()):
                if hook.__module__ == output_capturing.__name__:
                    del module._forward_hooks[key]
        return self.__dict__

    def capture_arguments(self, arguments: TransformersKwargs) -> dict[str, Any]:
        """Returns the arguments by which transformers captures outputs of an encoder's layers.

        Args:
            arguments: `output_hidden_states`, true or a list of layers, and `output_attentions`; if
                one is missing or None, the configuration decides. Any other argument must be None
                or False, except `num_items_in_batch`, because losses are means over the batch.

        Raises:
            TypeError: another argument has a value, such as one with a misspelt name.
        """
        others = dict(arguments)
        others.pop("num_items_in_batch", None)
        captured = {}
        for name in ("output_hidden_states", "output_attentions"):
            value = others.pop(name, None)
            if value is None:
                value = getattr(self.config, name)
            if value:
                captured[name] = value

        for name, value in others.items():
            if value is not None and value is not False:
                raise TypeError(f"{type(self).__name__} does not take the argument {name!r}.")

        return captured

    def lora_targets(self) -> dict[str, Any]:
        """Returns arguments of peft's `LoraConfig`.

        Adapters go to the query and value projections of the attention; heads are trained whole,
        and a frozen chunk encoder gets no adapter:
        ``get_peft_model(model, LoraConfig(r=8, **model.lora_targets()))``.

        Raises:
            ValueError: the model has no such projections, such as one without layers over chunks.
        """
        linear_layers = {
            name.rpartition(".")[2]
            for name, layer in self.named_modules()
            if isinstance(layer, nn.Linear) and "chunk_encoder." not in name
        }
        targets = linear_layers & _ATTENTION_PROJECTIONS
        whole = self.modules_to_train_whole()
        quantized = self._quantized_in(whole)
        if quantized:
            logger.warning(
                "%s: quantised weights cannot be trained whole, so these layers get adapters. To"
                " train them whole, add the modules to llm_int8_skip_modules of the quantisation.",
                ", ".join(sorted(quantized)),
            )

        if not targets:
            raise ValueError(
                f"{type(self).__name__} has no layers with attention here, so that there is nothing"
                " to adapt. Train its head alone, or make a model with num_hidden_layers=1 or more."
            )

        return {
            "target_modules": sorted(targets.union(*quantized.values())),
            "modules_to_save": [name for name in whole if name not in quantized],
            "exclude_modules": r".*\bchunk_encoder\b.*",
        }

    def _quantized_in(self, names: Sequence[str]) -> dict[str, set[str]]:
        """Returns the quantised linear layers in each of some modules, all by their last names."""
        quantized: dict[str, set[str]] = {}
        for path, layer in self.named_modules():
            if not isinstance(layer, nn.Linear) or layer.weight.is_floating_point():
                continue
            parts = path.split(".")
            for name in set(names).intersection(parts):
                quantized.setdefault(name, set()).add(parts[-1])
        return quantized

    def modules_to_train_whole(self) -> list[str]:
        """Returns the names of the heads, which are trained whole beside an adapter.

        Heads start at random.
        """
        if self.base_model is self:
            return []
        return [
            name
            for name, module in self.named_children()
            if module is not self.base_model and list(module.parameters())
        ]


def _model_key(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the family and the chunk encoder of a configuration."""
    return config.get("model_type"), config.get("chunk_encoder_fingerprint")


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of `config_sentence_transformers.json` for a configuration."""
    return {
        **_CONFIG_SENTENCE_TRANSFORMERS,
        "prompts": config.get("prompts") or {},
        "default_prompt_name": config.get("default_prompt_name"),
    }


def _has_other_settings(settings_file: Path, config: Mapping[str, Any]) -> bool:
    """Returns whether somebody changed the settings that this package wrote."""
    stored = read_json(settings_file)
    if not stored:
        return False
    usual = _settings(config)
    # sentence-transformers adds empty prompts.
    usual["prompts"] = {name: text for name, text in usual["prompts"].items() if text}
    stored["prompts"] = {name: text for name, text in stored["prompts"].items() if text}
    return usual != {name: stored.get(name) for name in usual}


def _is_newer(settings_file: Path, modules_file: Path) -> bool:
    """Returns whether sentence-transformers is saving the model, and just wrote its settings.

    It writes the settings before the model and `modules.json` after the model, so that only then
    the settings are newer, or there is no `modules.json`.
    """
    if read_json(settings_file) is None:
        return False
    if not modules_file.exists():
        return True
    return settings_file.stat().st_mtime_ns > modules_file.stat().st_mtime_ns


def load_tokenizer(name_or_path: str | PathLike, **arguments: Any) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of an encoder without its length limit: no document is too long here.

    Raises:
        ValueError: there is no tokenizer.
    """
    arguments = {"model_max_length": NO_LENGTH_LIMIT, **arguments}
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, **arguments)
    # transformers makes a tokenizer without words.
    if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):
        raise ValueError(
            f"There is no tokenizer in {name_or_path!r}. tokenizer.save_pretrained(folder) puts one"
            " there."
        )
    return tokenizer


def with_limit(tokenizer: PreTrainedTokenizerBase, limit: int) -> PreTrainedTokenizerBase:
    """Copies a tokenizer, with another length limit."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length = limit
    return tokenizer


def split_arguments(
    config_class: type[PreTrainedConfig], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits keyword arguments for a new model into loading arguments and configuration fields.

    Raises:
        ValueError: for an argument that is neither; transformers would keep it in the
            configuration.
    """
    fields = config_class.__dataclass_fields__
    own_fields = sorted(fields.keys() - PreTrainedConfig.__dataclass_fields__.keys())
    further = ["num_labels", *LOADING_ARGUMENTS, "trust_remote_code"]
    allowed = {"attn_implementation", *fields, *further}
    allowed -= {"dtype"}  # which belongs to the weights
    for name in arguments:
        if name not in allowed:
            raise ValueError(
                f"{config_class.__name__} has no field {name!r}{nearest(name, allowed)}. Its fields"
                f" are {', '.join(own_fields)}; further arguments are {', '.join(further)}."
            )

    refuse_remote_code(arguments.get("trust_remote_code"))

    loading = {}
    configuration = {}
    for key, value in arguments.items():
        if key in LOADING_ARGUMENTS:
            loading[key] = value
        elif key != "trust_remote_code":
            configuration[key] = value

    return loading, configuration


def nearest(name: str, names: Collection[str]) -> str:
    """Returns a question after the name that an unknown one may stand for; empty without one."""
    similar = [other for other in sorted(names) if name in other]
    similar += difflib.get_close_matches(name, sorted(names), n=1)
    if not similar:
        return ""
    return f" (did you mean {similar[0]!r}?)"


def refuse_remote_code(trust_remote_code: bool | None) -> None:
    """Raises an error if the code of an encoder is to be run.

    Raises:
        ValueError: the argument is true.
    """
    if trust_remote_code:
        raise ValueError(
            "trust_remote_code=True: an encoder with code of its own cannot become part of a model"
            " of this package, whose checkpoint would need that code. Leave the argument out, and"
            " use an encoder of an architecture that transformers has."
        )
