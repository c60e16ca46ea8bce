"""``nextlevelbert plan``: what encoding documents would take."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..models.modeling_nextlevelbert import DocumentPlan
from .opening import open_model
from .printing import Printer, print_json, print_unreadable
from .shelf import Unreadable, list_files, place_of, read_file


def run(arguments: argparse.Namespace) -> None:
    model = open_model(arguments.model, arguments.chunk_encoder)
    unreadable: list[Unreadable] = []
    plans: list[tuple[str, int, DocumentPlan]] = []
    for file in list_files(arguments.source):
        documents = read_file(file)
        if isinstance(documents, Unreadable):
            unreadable.append(documents)
            continue
        for document in documents:
            plan = model.plan(document.text)
            assert isinstance(plan, DocumentPlan)  # one for one text
            plans.append((place_of(file, document), len(document.text), plan))
    if arguments.json:
        rows = [{"place": place, "characters": size, **asdict(plan)} for place, size, plan in plans]
        print_json({"model": model.name_or_path, "documents": rows}, unreadable)
    else:
        columns: list[tuple[str, *tuple[int, ...]]] = [
            (place, size, plan.tokens, plan.chunks, plan.windows) for place, size, plan in plans
        ]
        if len(columns) > 1:
            numbers = [sum(column) for column in zip(*(row[1:] for row in columns), strict=True)]
            columns.append((f"{len(columns)} documents", *numbers))
        rows_of_text = [(place, *(f"{number:,}" for number in numbers)) for place, *numbers in columns]
        Printer().table(("document", "characters", "tokens", "chunks", "windows"), rows_of_text, left=(0,))
        print_unreadable(unreadable)
    if not plans:
        raise SystemExit(1)
