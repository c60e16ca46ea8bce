"""Long-document encoders for Hugging Face Transformers: a book as one sequence of chunk vectors.

Importing this package registers its models with `AutoConfig`, `AutoModel` and the `AutoModelFor…`
classes, so that `AutoModel.from_pretrained` and `SentenceTransformer` open its checkpoints without
a flag.
"""

import os
import sys

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing `typing` takes a tenth of the time of `nextlevelbert --help`
# Python imports this package before it starts the command, a script of this name or
# `python -m nextlevelbert`.
_is_command = os.path.basename(sys.argv[0]) == __name__ or (
    sys.argv[0] == "-m" and __name__ in sys.orig_argv
)

if TYPE_CHECKING or not _is_command:
    from .public import *  # noqa: F403  # its `__all__` says what
    from .public import __all__ as __all__
else:
    # The command answers a question without torch, whose import takes longer than the answer.
    def __getattr__(name: str) -> object:
        from . import public

        return getattr(public, name)
