"""Which mentions in several texts mean the same? Marked texts in, groups of mentions out.

Enclose each mention in <m> and </m>. Each file is a document, and all documents should be about
related things:

    python examples/cdlm/link_mentions.py --model linker first.txt second.txt third.txt
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch
from coreference import cluster_mentions

from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor, read_marked
from nextlevelbert.command import run_command


@torch.no_grad()
def probabilities(
    model: CdlmForCrossDocumentCoreference,
    processor: CdlmProcessor,
    marked: list[tuple[str, list[tuple[int, int]]]],
) -> np.ndarray:
    """Computes the probability ``[n, n]`` that any two of the n mentions mean the same.

    Documents are read in pairs.
    """
    document_of = [number for number, (_, spans) in enumerate(marked) for _ in spans]
    spans = [span for _, spans in marked for span in spans]
    scores_of = np.eye(len(spans))
    for documents in itertools.combinations_with_replacement(range(len(marked)), 2):
        chosen = [number for number, document in enumerate(document_of) if document in documents]
        pairs = [
            (a, b)
            for a, b in itertools.combinations(chosen, 2)
            if {document_of[a], document_of[b]} == set(documents)
        ]
        if not pairs:
            continue
        sides = sorted(set(documents))
        row = processor.mentions(
            [marked[document][0] for document in sides],
            [(sides.index(document_of[number]), *spans[number]) for number in chosen],
            [(chosen.index(a), chosen.index(b)) for a, b in pairs],
        )
        scores = model(**processor.pad([row]).to(model.device)).logits[0].sigmoid()
        for (a, b), score in zip(pairs, scores.tolist(), strict=True):
            scores_of[a, b] = scores_of[b, a] = score
    return scores_of


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="texts with marked mentions")
    parser.add_argument("--model", required=True, help="a CDLM fine-tuned for coreference")
    parser.add_argument(
        "--threshold",
        type=float,
        help="mean probability from which groups are joined; default: the model's",
    )
    args = parser.parse_args(argv)

    model = CdlmForCrossDocumentCoreference.from_pretrained(args.model).eval()
    marked = [read_marked(file.read_text(encoding="utf-8")) for file in args.files]
    scores = probabilities(model, CdlmProcessor.from_model(model), marked)
    groups = cluster_mentions(
        [(list(range(len(scores))), scores)], args.threshold or model.config.coreference_threshold
    )
    mentions = [
        (file.name, text[start:end])
        for file, (text, spans) in zip(args.files, marked, strict=True)
        for start, end in spans
    ]
    for group in dict.fromkeys(groups):
        together = [mention for mention, of in zip(mentions, groups, strict=True) if of == group]
        print("; ".join(f"{words!r} ({name})" for name, words in together))


if __name__ == "__main__":
    raise SystemExit(run_command(main))
