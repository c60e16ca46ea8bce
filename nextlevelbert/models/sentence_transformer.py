"""How sentence-transformers opens our checkpoints: with its own `Transformer` module and nothing else.

Since its version 6, a folder that names any other module class asks for `trust_remote_code`. Ours never
does: `SentenceTransformer(path)` after `import nextlevelbert`. Its `encode` tokenises a document whole
and calls the model's `forward`, which chunks, encodes and pools.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILES: dict[str, Any] = {
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


def write_sentence_transformer_files(folder: str | Path, tokenizer: Any) -> None:
    """Adds to a saved model what `SentenceTransformer(folder)` needs: three small files and the tokenizer.

    Args:
        folder: where `save_pretrained` has put the model.
        tokenizer: of the chunk encoder. It is saved without a length limit, because sentence-transformers
            cuts texts at the tokenizer's limit and no document is too long here. None leaves it out.
    """
    for name, content in FILES.items():
        (Path(folder) / name).write_text(json.dumps(content, indent=2) + "\n")
    if tokenizer is not None:
        limit, tokenizer.model_max_length = tokenizer.model_max_length, int(1e30)
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = limit
