"""Which sentences of a document interact? Attention and similarity of all pairs, as maps.

python examples/sentence_interaction.py --model hate --documents my_texts/ --id a-letter --output maps.png

One map for each layer shows the attention that each sentence pays to every other (mean of all heads). Two more show
the cosines of all pairs of sentences, before and after the document model has read them. A model that has learned
nothing from context shows stripes by position, and the same similarities before and after.
"""

from __future__ import annotations

import argparse
import textwrap

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from transformers import AutoModel

import nextlevelbert


def cosines(vectors: torch.Tensor) -> np.ndarray:
    """``[n, n]`` cosines of all pairs of ``[n, D]``."""
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    return (unit @ unit.T).numpy()


def attention_of_sentences(model, plain: torch.Tensor) -> list[np.ndarray]:
    """For each layer ``[n, n]``: how much row i attends to column j, without [CLS] and [SEP], mean of the heads."""
    with torch.inference_mode():
        output = model(inputs_embeds=plain[None], output_attentions=True)
    count = len(plain)
    return [layer[0].mean(dim=0)[1 : count + 1, 1 : count + 1].numpy() for layer in output.attentions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint of a HATE or NextLevelBERT")
    parser.add_argument("--documents", required=True, help='file, folder or pattern, or "python-manual"')
    parser.add_argument("--id", help="id of the document; default: the first one")
    parser.add_argument("--sentences", type=int, default=40, help="number of chunks to show; default: 40")
    parser.add_argument("--output", required=True, help="the picture to write (.png)")
    args = parser.parse_args()

    matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in a name is one
    book = next((d for d in nextlevelbert.read_documents(args.documents) if args.id in (None, d.id)), None)
    if book is None:
        parser.error(f"no document {args.id!r} in {args.documents}; without --id the first is taken")
    model = AutoModel.from_pretrained(args.model, attn_implementation="eager").eval()  # the others keep no attentions
    count = min(args.sentences, model.config.max_chunks)
    found = model.encode(book.text)
    plain, spans = found.plain[:count], found.spans[:count]
    if len(plain) < 2:
        parser.error(f"{book.id!r} has {len(plain)} chunk(s); a map needs two")
    if len(found.plain) > len(plain):
        print(f"{book.id!r} has {len(found.plain)} chunks; the maps show the first {len(plain)}.")
    with torch.inference_mode():
        contextual = model(inputs_embeds=plain[None]).last_hidden_state[0]
    layers = attention_of_sentences(model, plain)
    maps = {f"attention, layer {number}": layer for number, layer in enumerate(layers, start=1)}
    maps |= {"cosines before": cosines(plain), "cosines after": cosines(contextual)}

    columns = min(4, len(maps))
    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(3.4 * columns, 3.3 * rows), dpi=110, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (name, values) in zip(panels, maps.items(), strict=False):
        shown = np.where(np.eye(len(values), dtype=bool), np.nan, values)  # itself would outshine all others
        colours, edge = "magma" if name.startswith("attention") else "viridis", len(values) + 0.5
        image = axes.imshow(shown, cmap=colours, extent=(0.5, edge, edge, 0.5))  # counted from 1, as printed
        figure.colorbar(image, ax=axes, shrink=0.8)
        axes.set_title(name, fontsize=10)
        axes.set(xlabel="attended to" if name.startswith("attention") else "")
    for axes in panels[len(maps) :]:
        axes.axis("off")
    figure.suptitle(f"{book.id}: {len(plain)} chunks", fontsize=11)
    figure.savefig(args.output)

    together = np.mean(layers, axis=0) * (1 - np.eye(len(plain)))
    print("\nThe strongest attention between two sentences, mean of all layers:")
    for flat in np.argsort(-together, axis=None, kind="stable")[:3].tolist():
        one, other = divmod(flat, len(plain))
        print(f"  {one + 1} to {other + 1}: {together[one, other]:.3f} (evenly it would be {1 / len(plain):.3f})")
        for number in (one, other):
            start, end = spans[number].tolist()
            print(textwrap.indent(textwrap.shorten(book.text[start:end], 100, placeholder=" …"), "     "))
    print(f"\nWrote {args.output}: {len(maps)} maps.")


if __name__ == "__main__":
    main()
