"""Makes a notebook of each script in `examples/papers` with jupytext: `make notebooks`.

The notebooks are not in the repository, since they would differ from the scripts sooner or later.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import jupytext
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

ROOT = Path(__file__).parents[1]
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
OPTIONS = ["--encoder", MINILM, "--output_dir", "trained"]
ARGUMENTS = {
    "bert_al": OPTIONS,
    "cdlm": OPTIONS,
    "chunkbert": OPTIONS,
    "hate": [MINILM],
    "next_level_bert": [MINILM],
}


def notebook(script: Path, arguments: list[str]) -> NotebookNode:
    """Makes a cell of the script's docstring, one of its arguments, and one of each paragraph."""
    text = script.read_text(encoding="utf-8")
    description = ast.get_docstring(ast.parse(text))
    body = text.split('"""', 2)[2].lstrip()
    body = re.sub(r"raise SystemExit\((.*)\)", r"\1", body)  # a notebook has no exit status
    made = jupytext.reads(body, fmt="py:light")
    made.cells = [
        new_markdown_cell(f"# {description}"),
        new_code_cell('%pip install --quiet "nextlevelbert[examples]"'),
        new_code_cell(f"import sys\n\nsys.argv = {[script.name, *arguments]!r}"),
        *made.cells,
    ]
    python = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made.metadata = {"kernelspec": python}
    return made


def main(folder: str) -> None:
    Path(folder).mkdir(exist_ok=True)
    for name, arguments in ARGUMENTS.items():
        script = ROOT / "examples" / "papers" / f"{name}.py"
        path = Path(folder) / f"{name}.ipynb"
        jupytext.write(notebook(script, arguments), path)
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
