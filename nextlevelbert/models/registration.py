"""Registers the models of this package with transformers."""

import sys

import transformers
from transformers import AutoConfig, AutoProcessor

from .configuration_cdlm import CdlmConfig
from .modeling_bert_al import BertAlModel
from .modeling_cdlm import CdlmModel
from .modeling_chunkbert import ChunkBertModel
from .modeling_hate import HateModel
from .modeling_nextlevelbert import NextLevelBertModel
from .processing_cdlm import CdlmProcessor


def register_models() -> None:
    """Lets `AutoConfig`, `AutoModel` and their kin open the checkpoints of all families."""
    for family in (NextLevelBertModel, HateModel, ChunkBertModel, BertAlModel, CdlmModel):
        config: type[transformers.PreTrainedConfig] = family.config_class
        AutoConfig.register(config.model_type, config, exist_ok=True)
        for auto_class, path in family.family_auto_map.items():
            if auto_class != "AutoConfig":
                model = getattr(sys.modules[family.__module__], path.rpartition(".")[2])
                getattr(transformers, auto_class).register(config, model, exist_ok=True)
    AutoProcessor.register(CdlmConfig, CdlmProcessor, exist_ok=True)
