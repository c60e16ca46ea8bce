"""Long-document encoders for Hugging Face Transformers: a book as one sequence of chunk vectors.

Importing this package registers its models with `AutoConfig`, `AutoModel` and the `AutoModelFor…`
classes, so that `AutoModel.from_pretrained` and `SentenceTransformer` open its checkpoints without
a flag.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# `python -m nextlevelbert` imports this package before it starts the command.
_is_command = "nextlevelbert_command" in sys.modules or (
    sys.argv[:1] == ["-m"] and __name__ in sys.orig_argv
)

if TYPE_CHECKING or not _is_command:
    from .public import *  # noqa: F403  # its `__all__` says what
    from .public import __all__ as __all__
else:
    # The command answers a question without torch, whose import takes longer than the answer.
    def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public name
        return getattr(importlib.import_module(f"{__name__}.public"), name)
