"""What a run draws is a third of its time, and no fault is looked for in it: pictures are files of one line here."""

from __future__ import annotations

from pathlib import Path

import matplotlib.figure
import pytest


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_drawn():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            matplotlib.figure.Figure, "savefig", lambda figure, path, **options: Path(path).write_bytes(b"a picture")
        )
        yield
