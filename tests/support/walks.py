"""How much of the package a reader must be ready to open: `python -m tests.support.walks`."""

import ast
from collections.abc import Iterator
from pathlib import Path

from .plainness import count

PACKAGE = Path(__file__).parents[2] / "nextlevelbert"
ENTRIES = {
    "a model": "models/modeling_nextlevelbert.py",
    "a corpus": "corpus/encode.py",
    "pretraining": "pretraining/pretrain.py",
    "fine-tuning": "finetuning/classification.py",
    "search, as it starts": "search/answers.py",
}
# They import everything.
FACES = {PACKAGE / "__init__.py", PACKAGE / "public.py"}


def statements(node: ast.AST, within_functions: bool) -> Iterator[ast.AST]:
    """Yields what is below a node, but for what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        is_left_out = isinstance(child, ast.FunctionDef) and not within_functions
        if not is_for_types and not is_left_out:
            yield child
            yield from statements(child, within_functions)


def imported_files(path: Path, within_functions: bool = True) -> set[Path]:
    """Returns the files of the package that a file imports."""
    folder = path.relative_to(PACKAGE.parent).parts[:-1]
    files = set[Path]()
    for node in statements(ast.parse(path.read_text(encoding="utf-8")), within_functions):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            level = getattr(node, "level", 0)
            parents: tuple[str, ...] = ()
            if level > 0:
                parents = folder[: len(folder) + 1 - level]
            names = [alias.name for alias in node.names]
            if module:
                names.append("")
            for name in names:
                dotted = ".".join(filter(None, [*parents, module, name]))
                place = PACKAGE.parent.joinpath(*dotted.split("."))
                files.update((place.with_suffix(".py"), place / "__init__.py"))
    return {file for file in files if file.is_relative_to(PACKAGE) and file.exists()}


def reached(entry: Path, within_functions: bool = True) -> set[Path]:
    """Returns the files that a file can reach by imports."""
    files = set[Path]()
    waiting = {entry}
    while waiting:
        files |= waiting
        waiting = set().union(*(imported_files(path, within_functions) for path in waiting))
        waiting -= files | FACES
    return files


if __name__ == "__main__":
    for title, entry in ENTRIES.items():
        counts = list(map(count, reached(PACKAGE / entry, "as it starts" not in title)))
        nodes = sum(numbers["nodes"] for numbers in counts)
        print(f"{title:22} {len(counts):3} files {nodes:7,} nodes")
