"""Measures the results, and writes their tables into docs/results.md and README.md.

    python -m benchmarks.results --list
    python -m benchmarks.results --data DATA --packages PACKAGES
    python -m benchmarks.results --data DATA --only document-vectors
    python -m benchmarks.results --render

Each section is one command. Its figures are a JSON file in ``benchmarks/results/measured``, which
is part of the repository. A section is not measured again if its file has the same command and the
same commit of the code. The page is rendered from these files after each section, so that a run
can be stopped and resumed at any time. Sections whose inputs are not given are left out.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter
from typing import Any

from benchmarks.common.measuring import print_table, processor
from benchmarks.results.page import markdown, provenance, render
from benchmarks.results.sections import SECTIONS, Section

ROOT = Path(__file__).parents[2]
MEASURED = Path(__file__).with_name("measured")
PAGES = ("docs/results.md", "README.md")
# A change of these can change a figure.
CODE = (
    "nextlevelbert",
    "metrics",
    "examples",
    "benchmarks/common",
    "benchmarks/studies",
)
INPUTS = {
    "data": "folder with novels/, retrieval/, squality/, hyperpartisan/ and so on",
    "packages": "unpacked Debian packages (see benchmarks.studies.everyday_questions)",
    "manuals": "unpacked Debian packages (see benchmarks.studies.kinds_of_text)",
    "encoder": "folder or name of all-MiniLM-L6-v2",
}


def inputs_of(section: Section) -> list[str]:
    """Returns the names of the inputs in a section's commands."""
    commands = " ".join([section.command, *section.prepare.values()])
    fields = {name for _, name, _, _ in Formatter().parse(commands) if name is not None}
    return [name for name in INPUTS if name in fields]


def shown_command(section: Section) -> str:
    """Returns the command of a section with names in place of its inputs."""
    return section.command.format(
        json="FILE", folder="OUT", **{name: name.upper() for name in INPUTS}
    )


def read_measured(name: str) -> dict[str, Any] | None:
    """Reads the JSON file of a section, if there is one."""
    path = MEASURED / f"{name}.json"
    if not path.exists():
        return None
    return json.loads(path.read_text(encoding="utf-8"))


def code_commit() -> str:
    """Returns the last commit that changed the code.

    Raises:
        RuntimeError: if the code differs from that commit.
    """

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", "-C", str(ROOT), *arguments, "--", *CODE], text=True)

    changed = git("status", "--porcelain")
    if changed:
        raise RuntimeError(f"Commit these changes first, so that a table has a commit:\n{changed}")
    return git("log", "-1", "--format=%h", "--abbrev=8").strip()


def is_current(section: Section, commit: str) -> bool:
    """Says whether a section was measured by the same command and the same code."""
    measured = read_measured(section.name)
    if measured is None:
        return False
    return measured["command"] == shown_command(section) and measured["commit"] == commit


def run(command: str, inputs: Mapping[str, Any]) -> tuple[float, float]:
    """Runs a command on one core.

    Returns:
        Its CPU-seconds and the GiB of its largest process.

    Raises:
        RuntimeError: if the command fails.
    """
    argv = [part.format(**inputs) for part in shlex.split(command)]
    argv[:1] = {
        "python": [sys.executable],
        "nextlevelbert": [sys.executable, "-m", "nextlevelbert"],
    }[argv[0]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(argv, cwd=ROOT, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"This command failed, see above: {shlex.join(argv)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def measure(section: Section, commit: str, args: Namespace) -> None:
    """Runs the commands of a section, and writes its JSON file."""
    folder = args.folder.resolve() / commit
    folder.mkdir(parents=True, exist_ok=True)
    figures = folder / f"{section.name}.json"
    inputs = {**vars(args), "folder": folder, "json": figures}
    seconds = 0.0
    peak = 0.0
    commands = [
        command
        for path, command in section.prepare.items()
        if not Path(path.format(**inputs)).exists()
    ]
    for command in [*commands, section.command]:
        used, memory = run(command, inputs)
        seconds += used
        peak = max(peak, memory)
    facts = {
        "command": shown_command(section),
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": processor(),
        "cpu_seconds": round(seconds),
        "peak_gib": round(peak, 1),
    }
    MEASURED.mkdir(exist_ok=True)
    written = json.loads(figures.read_text(encoding="utf-8"))
    if "cpu_seconds" in written:
        # Of trainings that may have ended in an earlier run, whose memory nobody saw.
        del facts["peak_gib"]
    measured = {**facts, **written}
    text = json.dumps(measured, indent=1, ensure_ascii=False)
    (MEASURED / f"{section.name}.json").write_text(f"{text}\n", encoding="utf-8")


def tables() -> dict[str, str]:
    """Makes the Markdown of all tables whose sections were measured."""
    made = {}
    for section in SECTIONS:
        if section.table is None:
            continue
        measured = {}
        for name in (section.name, *section.also):
            facts = read_measured(name)
            if facts is not None:
                measured[name] = facts
        if section.name not in measured:
            continue
        table = markdown(section.table(measured))
        made[section.name] = f"\n{table}\n\n{provenance(section.about, measured)}\n"
    return made


def render_pages() -> None:
    """Writes the tables into the pages."""
    made = tables()
    for name in PAGES:
        page = ROOT / name
        page.write_text(render(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def print_sections(sections: Sequence[Section]) -> None:
    """Prints what each section needs, and at which commit it was measured."""
    rows = []
    for section in sections:
        measured = read_measured(section.name) or {"commit": "not yet"}
        inputs = ", ".join(f"--{name}" for name in inputs_of(section))
        rows.append([section.name, section.needs, inputs, measured["commit"]])
    print_table(["section", "needs", "inputs", "measured at"], rows)
    for name, text in INPUTS.items():
        print(f"--{name}: {text}")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    names = [section.name for section in SECTIONS]
    parser.add_argument("--list", action="store_true", help="say what each section needs")
    parser.add_argument("--render", action="store_true", help="only write the tables")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SECTION")
    for name, text in INPUTS.items():
        parser.add_argument(f"--{name}", help=text)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "runs/results", help="for what is kept between runs"
    )
    args = parser.parse_args()
    sections = [section for section in SECTIONS if section.name in args.only]
    if args.list:
        print_sections(sections)
        return
    if not args.render:
        commit = code_commit()
        for section in sections:
            missing = [name for name in inputs_of(section) if getattr(args, name) is None]
            if missing:
                options = ", ".join(f"--{name}" for name in missing)
                print(f"{section.name}: left out, give {options}")
            elif is_current(section, commit):
                print(f"{section.name}: measured at {commit} already")
            else:
                print(f"{section.name}: {section.needs}", flush=True)
                measure(section, commit, args)
                render_pages()
    render_pages()


if __name__ == "__main__":
    main()
