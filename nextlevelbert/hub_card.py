"""The card that a model is published with: how it is opened, where transformers would say
nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

_OPENING = """A `{model}` over whole documents. Three ways of opening it, the last without the package:

```python
import nextlevelbert  # registers the model
from transformers import {auto}
from sentence_transformers import SentenceTransformer

model = {auto}.from_pretrained("{repo}")
model = SentenceTransformer("{repo}")  # one vector for each document
model = {auto}.from_pretrained("{repo}", trust_remote_code=True)
```
"""


def opening(model: Any, repo_id: str) -> str:
    """What a card says of a model of this package: its class, and how it is opened from the Hub."""
    name = type(model).__name__
    autos = (auto for auto, path in model.family_auto_map.items() if path.endswith(f".{name}"))
    return _OPENING.format(model=name, auto=next(autos, "AutoModel"), repo=repo_id)


def complete_card(model: Any, folder: str | Path, repo_id: str) -> None:
    """Fills the card of `push_to_hub` where it is transformers' empty template; one that someone
    wrote stays.
    """
    path = Path(folder) / "README.md"
    if path.exists() and "[More Information Needed]" in path.read_text(encoding="utf-8"):
        card = ModelCard.load(path)
        card.text = f"# {repo_id.rpartition('/')[2]}\n\n{opening(model, repo_id)}"
        card.save(path)


def card_of_trainer(trainer: Any, *args: Any, **kwargs: Any) -> None:
    """`Trainer.create_model_card`, which asks nothing of the model, with how it is opened."""
    trainer._plain_card(*args, **kwargs)
    path = Path(trainer.args.output_dir) / "README.md"
    model = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.is_world_process_zero() and hasattr(model, "family_auto_map"):
        text = opening(model, trainer.hub_model_id or Path(trainer.args.output_dir).name)
        card = path.read_text(encoding="utf-8").replace("More information needed\n", text, 1)
        path.write_text(card, encoding="utf-8")
