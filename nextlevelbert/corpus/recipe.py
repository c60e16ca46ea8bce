"""The recipe of a corpus: how its vectors were made, as values that JSON can store."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..models.chunking import ChunkingRule
from ..models.sentences import Splitter


def chunking_recipe(rule: ChunkingRule, splitter: Splitter | str | None) -> dict[str, Any]:
    """Describes how texts are split, as values that JSON can store.

    Raises:
        ValueError: the splitter has no name.
    """
    if splitter is not None and not isinstance(splitter, str):
        named: Any = splitter
        if not hasattr(splitter, "__qualname__"):  # an object that can be called
            named = type(splitter)
        splitter = f"{named.__module__}.{named.__qualname__}"
        if splitter.endswith(("<lambda>", "functools.partial")):
            raise ValueError(
                "A corpus stores the name of its splitter, but a lambda or a partial has none. Give"
                " a function that is defined with a name."
            )
    fields = asdict(rule)
    for name in ("max_chunk_size", "prompt_ids", "unpooled"):  # of the encoder, which is named
        del fields[name]
    if rule.prompt == "":
        del fields["prompt"]
    fields["splitter"] = splitter
    return json.loads(json.dumps(fields))


def recipe_facts(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that decide the vectors, without nesting.

    The encoder's name is left out, because only the weights decide the vectors.
    """
    facts = {}
    for section, fields in recipe.items():
        for name, value in fields.items():
            facts[f"{section}.{name}"] = value
    facts.pop("encoder.name", None)
    return facts


def recipe_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Names the fields in which two recipes differ, with both values.

    Returns:
        The differences in one line, empty if there are none.
    """
    left = recipe_facts(one)
    right = recipe_facts(other)
    fields = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    for facts, recipe in ((left, one), (right, other)):
        # A fingerprint says nothing to a reader without the name of the encoder.
        fingerprint = str(facts.get("encoder.fingerprint"))
        facts["encoder.fingerprint"] = f"{recipe['encoder'].get('name')} ({fingerprint[:12]}…)"
    return "; ".join(f"{name}: {left.get(name)!r}, {right.get(name)!r}" for name in fields)
