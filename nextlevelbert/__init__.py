"""Long-document encoders for Hugging Face Transformers: a book as one sequence of chunk vectors.

Importing this package registers its models with `AutoConfig`, `AutoModel` and the `AutoModelFor…`
classes, so that `AutoModel.from_pretrained` and `SentenceTransformer` open its checkpoints without
a flag.
"""

import os
import sys

__version__ = "0.1.0"

TYPE_CHECKING = False  # as in `typing`, whose import Ctrl-C would interrupt with a traceback
# Python imports this package before the command in it, which is a script of the same name, or
# `python -m nextlevelbert`.
_program = os.path.basename("".join(sys.argv[:1]))
_is_command = _program == __name__ or (_program == "-m" and __name__ in sys.orig_argv)

if TYPE_CHECKING or not _is_command:
    from .public import *  # noqa: F403  # its `__all__` says what
    from .public import __all__ as __all__
else:
    # The command answers a question without torch, whose import takes longer than the answer.
    def __getattr__(name: str) -> object:
        import importlib  # `from . import public` would ask this function for `public`

        return getattr(importlib.import_module(f"{__name__}.public"), name)
