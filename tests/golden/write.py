"""Writes the golden files: `python -m tests.golden.write`. Run once, by release 0.1.0; later releases only read them.

Everything is tiny and drawn from fixed seeds. A later release that stores something new adds files beside these; those
that are here stay as they are, because users have such files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from nextlevelbert import (
    CdlmConfig,
    CdlmProcessor,
    ChunkingRule,
    VectorCache,
    encode_corpus,
    load_chunk_encoder,
    quantize_chunk_encoder,
)

from .inputs import CLASSES, DOCUMENTS, FOLDER
from .outputs import TEXTS, outputs_of, vectors_of

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
SIZE |= {"max_position_embeddings": 40}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece of 90 pieces, laid out as BERT's."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIALS, show_progress=False)
    made.train_from_iterator(
        [document.text for document in DOCUMENTS]
        + ["a b c d e f g h i j k l m n o p q r s t u v w x y z ? ! , : ; 0 1 2 3 4 5 6 7 8 9"],
        trainer,
    )
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(tokenizer_object=made, **dict(zip(names, SPECIALS, strict=True)))


def write_encoder(folder: Path) -> None:
    torch.manual_seed(11)
    words = tokenizer()
    words.save_pretrained(folder / "bert")
    BertModel(BertConfig(**SIZE, vocab_size=len(words), initializer_range=0.3)).save_pretrained(folder / "bert")
    steps = [modules.Transformer(str(folder / "bert")), modules.Pooling(16, "mean"), modules.Normalize()]
    SentenceTransformer(modules=steps, device="cpu").save_pretrained(str(folder / "sentences"))


def new_model(name: str, encoder: Path) -> Any:
    """The model of a golden checkpoint, with weights that make every part of it matter."""
    torch.manual_seed(5)
    cls, kind = CLASSES[name], name.split("-")[-1]
    if name.startswith(("nextlevelbert", "hate")):
        fields: dict[str, Any] = {"chunk_size": 12}
        if kind == "contrastive":
            fields |= {"pooling": "residual", "residual_start": 0.5, "whiten_chunks": True}
        if kind == "classification":
            fields |= {"num_labels": 3}
        if name == "hate-masked":
            fields |= {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 1}
        model = cls.from_chunk_encoder(str(encoder / "sentences"), **fields)
        if kind == "contrastive":
            model.base_model.fit_whitening([vectors_of(model, 20), -0.5 * vectors_of(model, 11)])
    elif name.startswith("cdlm"):
        words = tokenizer()
        sizes = {**SIZE, "max_position_embeddings": 80, "vocab_size": len(words), "pair_scorer_hidden_size": 12}
        model = cls(CdlmConfig(**sizes, attention_window=8, pad_token_id=0, mask_token_id=4))
    else:
        fields = (
            {"chunk_size": 12, "num_averaged_layers": 2} if name.startswith("chunkbert") else {"segment_length": 12}
        )
        if kind == "classification":
            fields |= {"num_labels": 3}
        model = cls.from_encoder(str(encoder / "bert"), **fields)
    torch.manual_seed(6)
    for parameter_name, weight in model.named_parameters():
        if "chunk_encoder" not in parameter_name and weight.ndim > 0:
            noise = 0.2 * torch.randn_like(weight)
            weight.data += noise if "special" not in parameter_name else noise * weight.data.ne(0)
    return model.eval()


def write_checkpoints(encoder: Path) -> dict[str, torch.Tensor]:
    expected = {}
    for name in CLASSES:
        model, folder = new_model(name, encoder), FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        processor = None
        if name.startswith("cdlm"):
            model.tokenizer = tokenizer()
            processor = CdlmProcessor.from_model(model, max_length=60)
        model.save_pretrained(folder)
        if processor is not None:
            processor.save_pretrained(folder)
        for file in folder.glob("*.py"):
            file.unlink()  # today's code says how it reads yesterday's files
        expected |= {f"{name}/{key}": values.contiguous() for key, values in outputs_of(name, model).items()}
        print(name, sum(file.stat().st_size for file in folder.iterdir()))
    return expected


def write_adapter() -> dict[str, torch.Tensor]:
    name = "nextlevelbert-classification"
    model = CLASSES[name].from_pretrained(FOLDER / name)
    torch.manual_seed(7)
    adapted = get_peft_model(
        model, LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"], modules_to_save=["classifier"],
                          exclude_modules=r".*\bchunk_encoder\b.*")
    )  # fmt: skip
    for key, weight in adapted.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(weight, std=0.5)
    adapted.save_pretrained(FOLDER / "adapter")
    (FOLDER / "adapter" / "README.md").unlink(missing_ok=True)
    path = FOLDER / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": None}, indent=2) + "\n")
    return {f"adapter/{key}": values for key, values in outputs_of(name, adapted.get_base_model()).items()}


def write_corpus_cache_int8(encoder: Path) -> dict[str, torch.Tensor]:
    source = load_chunk_encoder(str(encoder / "sentences"), "golden/encoder")
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=40)
    for name in ("corpus", "cache", "int8"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    corpus = encode_corpus(DOCUMENTS, source, rule, FOLDER / "corpus", characters_per_shard=1_500, progress=False)
    keys = [bytes([number]) * 32 for number in range(3)]
    with VectorCache(FOLDER / "cache", max_bytes=2**20) as cache:
        cache.write(keys, np.arange(48, dtype=np.float32).reshape(3, 16))
    CLASSES["nextlevelbert"].from_pretrained(FOLDER / "nextlevelbert").encode(TEXTS, cache_dir=FOLDER / "cache")
    small = quantize_chunk_encoder(source, [document.text for document in DOCUMENTS], rule, FOLDER / "int8", chunks=8)
    ids = source.tokenizer(DOCUMENTS[2].text, add_special_tokens=False, return_tensors="pt")["input_ids"][:, :30]
    return {"corpus/vectors": torch.cat([document.vectors for document in corpus]), "int8/vectors": small.encoder(ids)}


TRAIN = [
    "--do_train", "--sequence_length", "12", "--max_steps", "6", "--save_strategy", "steps", "--save_steps", "3",
    "--save_total_limit", "3", "--eval_strategy", "no", "--validation_share", "0", "--per_device_train_batch_size",
    "2", "--learning_rate", "1e-3", "--logging_steps", "1", "--use_cpu", "--chunk_size", "12",
]  # fmt: skip


def write_run(encoder: Path) -> dict[str, torch.Tensor]:
    """Pretrains for six steps; keeps the checkpoint of the third, and the weights that the run ended with."""
    folder = FOLDER / "run"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(
        [sys.executable, "run_pretraining.py", "--chunk_encoder", str(encoder / "sentences"), "--corpus_dir",
         str(FOLDER / "corpus"), "--output_dir", str(folder), *TRAIN],
        check=True,
    )  # fmt: skip
    weights = load_file(folder / "model.safetensors")
    kept = [folder / "checkpoint-3"]
    for path in folder.iterdir():
        if path not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for file in kept[0].glob("*.py"):
        file.unlink()
    return {f"run/{key}": values for key, values in weights.items() if "chunk_encoder" not in key}


def main() -> None:
    encoder = FOLDER / "encoder"
    shutil.rmtree(encoder, ignore_errors=True)
    write_encoder(encoder)
    expected = write_checkpoints(encoder)
    expected |= write_adapter()
    expected |= write_corpus_cache_int8(encoder)
    expected |= write_run(encoder)
    save_file(
        {key: values.detach().clone().contiguous() for key, values in expected.items()},
        FOLDER / "expected.safetensors",
    )


if __name__ == "__main__":
    main()
