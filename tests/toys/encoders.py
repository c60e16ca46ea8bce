"""Tiny random sentence encoders of many architectures, saved by sentence-transformers."""

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModel,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    Gemma3TextConfig,
    LlamaConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    T5EncoderModel,
    XLMRobertaConfig,
)

WORDS = (
    "the a cat dog sat ran on mat home red blue house river went to and he she query passage : ."
)
TEXT = (
    "the red dog ran home . she sat on the mat and he went to the river . a blue cat sat on the red"
    " house . the dog went to the mat and the cat ran to the river ."
)
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
_SIZES: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
    "pad_token_id": 0,
}
_DECODER = {**_SIZES, "num_key_value_heads": 1, "head_dim": 16, "eos_token_id": 3}
_WINDOW = {"sliding_window": 4}

# Of layers with a pattern, three have two kinds.
CONFIGS: dict[str, PreTrainedConfig] = {
    "bert": BertConfig(**_SIZES),
    "roberta": RobertaConfig(**_SIZES),
    "xlm-roberta": XLMRobertaConfig(**_SIZES),
    "mpnet": MPNetConfig(**_SIZES),
    "distilbert": DistilBertConfig(
        vocab_size=len(VOCABULARY),
        dim=32,
        n_layers=3,
        n_heads=2,
        hidden_dim=64,
        max_position_embeddings=66,
    ),
    "albert": AlbertConfig(**_SIZES, embedding_size=16),
    "electra": ElectraConfig(**_SIZES, embedding_size=16),
    "deberta-v2": DebertaV2Config(
        **_SIZES,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        position_buckets=16,
    ),
    "modernbert": ModernBertConfig(**_SIZES, local_attention=8, cls_token_id=2, sep_token_id=3),
    "t5": T5Config(
        vocab_size=len(VOCABULARY), d_model=32, d_kv=16, d_ff=64, num_layers=3, num_heads=2
    ),
    "qwen3": Qwen3Config(**_DECODER, **_WINDOW, use_sliding_window=True, max_window_layers=1),
    "gemma3": Gemma3TextConfig(
        **_DECODER, **_WINDOW, sliding_window_pattern=2, use_bidirectional_attention=True
    ),
    "llama": LlamaConfig(**_DECODER),
}
DECODERS = ("qwen3", "llama")


def word_tokenizer(is_decoder: bool = False) -> PreTrainedTokenizerFast:
    """Makes a tokenizer whose tokens are whole words.

    A decoder's puts [SEP] behind a text, and pads on the left.
    """
    ids = {token: index for index, token in enumerate(VOCABULARY)}
    template = "[CLS] $A [SEP]"
    side = "right"
    if is_decoder:
        template = "$A [SEP]"
        side = "left"
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        padding_side=side,
    )


def save_encoder(
    folder: Path,
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerFast | None = None,
    pooling: str = "mean",
    include_prompt: bool = True,
    **settings: Any,
) -> str:
    """Saves a random sentence encoder.

    Args:
        folder: folder to write to.
        config: configuration of the transformer.
        tokenizer: tokenizer of the encoder (default: one of whole words).
        pooling: mode of sentence-transformers' `Pooling`.
        include_prompt: argument of `Pooling`.
        **settings: arguments of `SentenceTransformer`, such as prompts.

    Returns:
        The folder of the encoder.
    """
    if tokenizer is None:
        tokenizer = word_tokenizer()
    torch.manual_seed(0)
    if config.model_type == "t5":
        network = T5EncoderModel(config)
    else:
        network = AutoModel.from_config(config)
    network.save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    steps = [
        modules.Transformer(str(folder / "plain")),
        modules.Pooling(config.hidden_size, pooling, include_prompt=include_prompt),
        modules.Normalize(),
    ]
    SentenceTransformer(modules=steps, device="cpu", **settings).save(str(folder / "encoder"))
    return str(folder / "encoder")
