"""Is a masked word easier to predict where a related document that has it is in the sequence (CDLM, section 1)?

Every document of every cluster is a target once. Some of its words are masked and predicted in three sequences: with a
document of its cluster ("related"), with one of another cluster and of the same length ("unrelated"), and by itself
("alone"). Related and unrelated differ in the partner's tokens only: order, lengths and masks are the same. "shared"
words occur in the related partner and not in the unrelated one; "unshared" words, the control, occur in neither.
Every occurrence of a chosen word is masked, so that only the partner can show it.

    python -m benchmarks.studies.cross_document_context --model cdlm local-cdlm --patterns masked none \\
        --file validation.jsonl.gz --cluster_column subtopic --max_length 1024 --output context.json
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from tqdm import tqdm

from benchmarks.common.measuring import print_header, print_table, with_interval
from nextlevelbert import CdlmForMaskedLM, CdlmProcessor
from nextlevelbert.models.processing_cdlm import DOCUMENT
from nextlevelbert.pretraining.document_sets import PATTERNS, DocumentClusters, read_document_clusters

KINDS = ("shared", "unshared")
CONDITIONS = ("related", "unrelated", "alone")
SHARE, MOST = 0.15, 20  # of a target's shared words that are masked by default


class Word(NamedTuple):
    """One occurrence; `start` is the position of its first token."""

    text: str
    ids: tuple[int, ...]
    start: int


class Text(NamedTuple):
    """A document, cut: its tokens, and those words of it that are whole and known to the vocabulary."""

    ids: list[int]
    words: list[Word]


class Case(NamedTuple):
    """A target with its partners (of one length). `kinds` has, for each masked position in it, a number in `KINDS`."""

    cluster: int
    target: list[int]
    partners: dict[str, list[int]]
    target_first: bool
    kinds: dict[int, int]
    words: list[int]  # masked occurrences by kind


def cut(text: Text, length: int) -> Text:
    """The first tokens of a document."""
    return Text(text.ids[:length], [word for word in text.words if word.start + len(word.ids) <= length])


def read_text(text: str, tokenizer: Any) -> Text:
    """Splits a text into tokens, and into words as the tokenizer does (at punctuation, too)."""
    found = tokenizer(
        text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    ids, offsets = found["input_ids"], found["offset_mapping"]
    places: dict[int, tuple[int, int]] = {}  # first and last token of each word
    for position, number in enumerate(found.word_ids()):
        places[number] = (places.get(number, (position,))[0], position)
    words = [
        Word(text[offsets[first][0] : offsets[last][1]].strip(), tuple(ids[first : last + 1]), first)
        for first, last in places.values()
    ]
    return Text(ids, [word for word in words if tokenizer.unk_token_id not in word.ids])


def is_content(text: str) -> bool:
    """No stop word, and of four letters or more, a number, or (by its capital) a name."""
    if not text.isalnum() or text.lower() in ENGLISH_STOP_WORDS:
        return False
    return len(text) >= 4 or any(map(str.isdigit, text)) or (len(text) > 1 and text[0].isupper())


def forms(words: list[Word]) -> set[Any]:
    """Words by ids and by text: tokenizers may keep case and the space before a word apart, or drop accents."""
    return {form for word in words for form in (word.ids, word.text.lower())}


def word_pools(target: Text, related: Text, unrelated: Text) -> list[list[list[Word]]]:
    """Content words of the target by kind, each with all its occurrences."""
    groups: dict[str, list[Word]] = {}
    for word in target.words:
        groups.setdefault(word.text.lower(), []).append(word)
    near, far = forms(related.words), forms(unrelated.words)
    content = [
        each for each in groups.values() if any(is_content(word.text) for word in each) and not far & forms(each)
    ]
    shared = [each for each in content if all(word.ids in near for word in each)]
    return [shared, [each for each in content if not near & forms(each)]]


def build_cases(data: DocumentClusters, tokenizer: Any, args: argparse.Namespace) -> tuple[list[Case], Counter[str]]:
    """Draws partners, order and words of every document; the draws of one do not depend on the others.

    Returns:
        The cases, and how many documents and words there were and were left out, and why.

    Raises:
        ValueError: for fewer than two clusters.
    """
    if len(data.clusters) < 2:
        raise ValueError(f"{data.source} has one cluster only, so that no document is unrelated.")
    budget = (args.max_length - 2) // 2 - 2  # [CLS] and [SEP], and two separators for each document
    whole = [
        [read_text(text, tokenizer) for text in cluster] for cluster in tqdm(data.clusters, "tokenising", delay=2)
    ]
    texts = [[cut(text, budget) for text in cluster] for cluster in whole]
    every = [(number, text) for number, cluster in enumerate(texts) for text in cluster]
    owners, lengths = np.array([number for number, _ in every]), np.array([len(text.ids) for _, text in every])
    cases, counts = [], Counter[str]()
    for cluster in sorted(np.random.default_rng(args.seed).permutation(len(texts)).tolist()[: args.clusters]):
        for place, target in enumerate(texts[cluster]):
            rng = np.random.default_rng([args.seed, cluster, place])
            counts["documents"] += 1
            counts["documents cut"] += len(whole[cluster][place].ids) > budget
            others = [text for text in texts[cluster] if text.ids != target.ids]  # a copy would show every word
            if not others:
                counts["documents without another in their cluster"] += 1
                continue
            related = others[int(rng.integers(len(others)))]
            apart = abs(lengths - len(related.ids)) + rng.random(len(every))  # equal ones in random order
            unrelated = every[int(np.where(owners == cluster, np.inf, apart).argmin())][1]
            length = min(len(related.ids), len(unrelated.ids))
            related, unrelated = cut(related, length), cut(unrelated, length)
            pools = word_pools(target, related, unrelated)
            most = len(pools[0])
            counts["documents without shared words"] += not most
            if not most:
                continue
            wanted = min(most, args.words_per_document or min(MOST, max(1, round(SHARE * most))))
            counts["unshared words too few"] += max(0, wanted - len(pools[1]))
            drawn = [[word for at in rng.permutation(len(pool))[:wanted] for word in pool[at]] for pool in pools]
            kinds = {
                word.start + piece: kind
                for kind, words in enumerate(drawn)
                for word in words
                for piece in range(len(word.ids))
            }
            partners = {"related": related.ids, "unrelated": unrelated.ids}
            order = dict(sorted(kinds.items()))
            cases.append(Case(cluster, target.ids, partners, bool(rng.integers(2)), order, [*map(len, drawn)]))
    return cases, counts


def sequence(case: Case, condition: str, tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids with masks, and labels (-100 where nothing is masked), ``[1, L]`` each, of one case in one condition."""
    cls, begin, end, sep = tokenizer.convert_tokens_to_ids([tokenizer.cls_token, *DOCUMENT, tokenizer.sep_token])
    partner = [begin, *case.partners[condition], end] if condition != "alone" else []
    before, after = ([], partner) if case.target_first else (partner, [])
    ids = torch.tensor([[cls, *before, begin, *case.target, end, *after, sep]])
    masked = torch.zeros_like(ids, dtype=torch.bool)
    masked[0, torch.tensor(list(case.kinds)) + len(before) + 2] = True
    return ids.masked_fill(masked, tokenizer.mask_token_id), ids.masked_fill(~masked, -100)


@torch.no_grad()
def predict(model: Any, cases: list[Case], tokenizer: Any, pattern: str, dtype: torch.dtype) -> np.ndarray:
    """Loss and whether the best word is the true one, ``[N, 3, 2]`` for all masked tokens in the three conditions."""
    model.eval().config.sparse_prediction = True
    found = []
    for case in tqdm(cases, unit="document", desc=pattern):
        row = []
        for condition in CONDITIONS:
            ids, labels = (each.to(model.device) for each in sequence(case, condition, tokenizer))
            wide = labels != -100
            if pattern != "masked":  # as in DataCollatorForCrossDocumentMasking
                first = round(0.15 * ids.shape[1]) if pattern == "prefix" else 0
                wide = torch.arange(ids.shape[1], device=ids.device)[None] < first
            with torch.autocast(model.device.type, dtype, dtype != torch.float32):
                scores = model(ids, global_attention_mask=wide.long(), labels=labels).logits.float()  # [N, V]
            true = labels[labels != -100]
            loss = torch.nn.functional.cross_entropy(scores, true, reduction="none")
            row.append(torch.stack([loss, (scores.argmax(dim=1) == true).float()], dim=1))
        found.append(torch.stack(row, dim=1).cpu().numpy())
    return np.concatenate(found).astype(np.float64)


def summary(cases: list[Case], found: np.ndarray, kind: int, seed: int) -> dict[str, Any]:
    """The figures of one kind of words; none where there is no such word."""
    own = np.concatenate([list(case.kinds.values()) for case in cases]) == kind
    clusters = np.repeat([case.cluster for case in cases], [len(case.kinds) for case in cases])[own]
    figures: dict[str, Any] = {"clusters": len(np.unique(clusters))}
    figures |= {"documents": sum(case.words[kind] > 0 for case in cases)}
    figures |= {"words": sum(case.words[kind] for case in cases), "tokens": int(own.sum())}
    if not own.any():
        return {}
    losses, (_, *others) = found[own, :, 0], CONDITIONS
    means, right = losses.mean(axis=0), found[own, :, 1].mean(axis=0)
    figures |= {f"perplexity {name}": float(np.exp(mean)) for name, mean in zip(CONDITIONS, means, strict=True)}
    for column, name in enumerate(others, start=1):
        figures[f"related / {name}"] = float(np.exp(means[0] - means[column]))
        figures[f"loss, related - {name}"] = with_interval(losses[:, 0] - losses[:, column], clusters, seed)
    return figures | {f"accuracy {name}": float(share) for name, share in zip(CONDITIONS, right, strict=True)}


def cell(value: Any) -> str:
    """A figure for the table."""
    if isinstance(value, list):
        return "{:+.3f} ({:+.3f} to {:+.3f})".format(*value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", required=True, help="saved CdlmForMaskedLM with their processors")
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, help="global attention of each; default: masked")
    parser.add_argument("--file", required=True, help=".jsonl or .parquet, also .gz")
    parser.add_argument("--cluster_column", default="subtopic", help="'' where a row is a set of documents")
    parser.add_argument("--text_column", default="text")
    parser.add_argument("--clusters", type=int, help="only so many, drawn at random, give targets")
    parser.add_argument("--max_length", type=int, default=1024, help="tokens of a sequence; half for each document")
    parser.add_argument("--words_per_document", type=int, help="of each kind; default: 15 %% of the shared, 1 to 20")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="autocast")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    args = parser.parse_args()
    patterns = args.patterns or ["masked"] * len(args.model)
    if len(patterns) != len(args.model):
        parser.error(f"--patterns needs one for each of the {len(args.model)} models, got {len(patterns)}.")
    if args.max_length < 8 or any(each is not None and each < 1 for each in (args.words_per_document, args.clusters)):
        parser.error("--max_length must be at least 8, --words_per_document and --clusters at least 1.")
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    data = read_document_clusters(args.file, args.cluster_column or None, args.text_column)
    print_header(args.dtype, f"{data.source}, {args.max_length:,} tokens; intervals of 95 %, over clusters")
    rows, results = [], []
    for name, pattern in zip(args.model, patterns, strict=True):
        model = CdlmForMaskedLM.from_pretrained(name).to(device)
        tokenizer = CdlmProcessor.from_pretrained(name).tokenizer
        cases, counts = build_cases(data, tokenizer, args)
        print(f"{name}: {len(cases)} targets; {'; '.join(f'{what}: {n:,}' for what, n in counts.items())}\n")
        if not cases:
            raise ValueError(f"No document of {data.source} shares a word with another of its cluster.")
        found = predict(model, cases, tokenizer, pattern, getattr(torch, args.dtype))
        figures = {kind: summary(cases, found, number, args.seed) for number, kind in enumerate(KINDS)}
        rows += [(f"{name} ({pattern}), {kind}", own) for kind, own in figures.items() if own]
        results.append({"model": name, "pattern": pattern, "targets": len(cases), **counts, **figures})
    print_table(["model", *rows[0][1]], [[name, *map(cell, own.values())] for name, own in rows])
    settings = {key: value for key, value in vars(args).items() if key not in ("output", "model", "patterns")}
    args.output.write_text(json.dumps({**settings, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
