"""Scripts in processes of their own, without the seconds that imports take.

They are forked from a process that has imported torch, transformers and sentence-transformers, and
not this package.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

_SERVER = """
import json, os, sys, traceback
import datasets, peft, sentence_transformers, torch, transformers

for line in sys.stdin:
    script, arguments, output, errors = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # there is nobody to ask
        for number, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv, status = ["script", *arguments], 1
        try:
            exec(script, {"__name__": "__main__"})
            status = 0
        except BaseException as error:
            if isinstance(error, SystemExit) and error.code in (None, 0):
                status = 0
            else:
                traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
_HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "nextlevelbert":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Hidden())
"""


class FreshProcess:
    """The process that forks, as a context manager, with `folder` for what it writes."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._output = folder / "output"
        self._errors = folder / "errors"
        self._environment = environment
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            cwd=Path(__file__).parents[2],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def __call__(
        self, script: str, *arguments: str | os.PathLike, hidden: bool = False, fails: bool = False
    ) -> str:
        """Runs a script; gives what it prints, or, where it `fails` as it should, its error.

        `hidden`: as if this package were not installed. A process that has ended is started anew.
        """
        if self._process.poll() is not None:
            self._process = self._start()
        message = [
            _HIDDEN * hidden + script,
            list(map(str, arguments)),
            str(self._output),
            str(self._errors),
        ]
        print(json.dumps(message), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"The process that forks ended with status {self._process.wait()}."
        status = int(answer)
        errors = self._errors.read_text()
        assert status == int(fails), errors
        return errors if fails else self._output.read_text()
