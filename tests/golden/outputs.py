"""What is computed from the golden checkpoints; without the package, so that it can also ask a model without it."""

from __future__ import annotations

from typing import Any

import torch

_NAMES = ("the whale", "a train", "the baker", "an old star", "Mr. Hill", "the long sea")
_DEEDS = ("swims", "leaves at noon", "bakes bread", "shines far away", "reads 3.5 pages", "is never still")


def story(number: int, sentences: int) -> str:
    """A text of so many short sentences, another one for each number."""
    return " ".join(
        f"{_NAMES[(number + 5 * place) % 6]} {_DEEDS[(number * place + place // 3) % 6]}.".capitalize()
        for place in range(sentences)
    )


STORIES = [story(number, 12 + 9 * number) for number in range(6)]
TEXTS = STORIES[:3]


def vectors_of(model: Any, *shape: int) -> torch.Tensor:
    """Random chunk vectors of length 1 for a model over vectors."""
    size = (*shape, model.config.chunk_hidden_size)
    return torch.nn.functional.normalize(torch.randn(size, generator=torch.Generator().manual_seed(1)), dim=-1)


def _masked(model: Any) -> dict[str, torch.Tensor]:
    """[CLS], chunk vectors of which two are masked, and [SEP] where the model has it."""
    vectors = vectors_of(model, 2, 7)
    special_ids = torch.full((2, 7), -1)
    special_ids[:, 0] = 1
    special_ids[:, 3] = special_ids[0, 5] = 3
    if model.config.special_positions == 2:
        special_ids[:, 6] = 2
    targets = special_ids == 3
    return {"inputs_embeds": vectors, "special_ids": special_ids, "labels": vectors, "mask_positions": targets}


def _tokens(model: Any, texts: list[str]) -> dict[str, torch.Tensor]:
    found = model.tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=True)
    return {name: found[name] for name in ("input_ids", "attention_mask")}


def _choice(model: Any) -> dict[str, torch.Tensor]:
    pairs = _tokens(model, ["the whale swims?", "a train leaves?"] * 3)
    return _tokens(model, TEXTS) | {
        f"pair_{name}": values.view(3, 2, -1) for name, values in pairs.items()
    }  # fmt: skip


def _of_encode(model: Any, texts: list[str]) -> dict[str, torch.Tensor]:
    found = model.encode(texts)
    return {
        "document": torch.stack([each.document for each in found]),
        "chunks": torch.cat([each.chunks for each in found]),
        "plain": torch.cat([each.plain for each in found]),
        "spans": torch.cat([torch.as_tensor(each.spans) for each in found]),
    }


def _of_forward(model: Any, inputs: dict[str, torch.Tensor], names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    outputs = model(**inputs)
    return {name: outputs[name] for name in names}


@torch.no_grad()
def outputs_of(name: str, model: Any) -> dict[str, torch.Tensor]:
    """What a golden checkpoint computes, by name of the output: what is compared, release by release."""
    model = model.eval()
    kind = name.split("-")[-1] if name not in ("bert-al", "cdlm") else ""
    if name in ("nextlevelbert", "hate"):
        vectors = vectors_of(model, 2, 9)
        pooled = model(inputs_embeds=vectors).pooler_output
        return _of_encode(model, TEXTS) | {"pooled": pooled} | _of_forward(
            model, _tokens(model, TEXTS), ("last_hidden_state",)
        )  # fmt: skip
    if kind == "masked" and not name.startswith("cdlm"):
        return _of_forward(model, _masked(model), ("loss", "predictions"))
    if kind == "contrastive":
        pairs = vectors_of(model, 3, 2, 5)  # documents, two segments, chunks
        special_ids = torch.full((3, 2, 5), -1)
        special_ids[..., 0], special_ids[..., -1] = 1, 2
        inputs = {"inputs_embeds": pairs, "special_ids": special_ids, "document_ids": torch.arange(3)}
        return _of_forward(model, inputs, ("loss", "scores"))
    if kind == "choice":
        return _of_forward(model, _choice(model), ("logits",))
    if name.startswith("cdlm"):
        return _of_cdlm(name, model)
    if kind == "summarization":
        found = [model.summarize(text.replace(". ", ".|").split("|")) for text in TEXTS]
        return {
            "scores": torch.cat([torch.tensor(summary.scores) for summary in found]),
            "picked": torch.cat([torch.tensor(summary.indices) for summary in found]),
        }
    if kind == "classification":
        return _of_forward(model, _tokens(model, TEXTS), ("logits",))
    return _of_forward(model, _tokens(model, TEXTS), ("last_hidden_state", "pooler_output"))


def _of_cdlm(name: str, model: Any) -> dict[str, torch.Tensor]:
    ids = torch.randint(10, model.config.vocab_size, (2, 33), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[1, 20:] = 0
    wide = torch.zeros_like(ids)
    wide[:, [0, 7, 15]] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "global_attention_mask": wide}
    if name == "cdlm":
        return _of_forward(model, inputs, ("last_hidden_state", "pooler_output"))
    if name == "cdlm-coreference":
        del inputs["global_attention_mask"]
        spans = torch.tensor([[[3, 5], [20, 21]], [[0, 1], [6, 9]]])
        return _of_forward(model, inputs | {"mention_spans": spans, "mention_pairs": torch.tensor([[[0, 1]]] * 2)},
                           ("logits",))  # fmt: skip
    if name == "cdlm-questions":
        more = {
            "sentence_index": torch.tensor([[12, 19], [9, -1]]),
            "paragraph_index": torch.tensor([[9, 25], [6, -1]]),
            "context_mask": wide,
        }
        return _of_forward(model, inputs | more, ("start_logits", "end_logits", "type_logits", "sentence_logits"))
    return _of_forward(model, inputs, ("logits",))
