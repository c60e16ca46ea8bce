"""``python -m nextlevelbert`` is the command `nextlevelbert`.

Its help takes seconds longer: Python imports the package first, which registers the models and so loads transformers.
"""

import sys

from nextlevelbert_command import main

if __name__ == "__main__":
    sys.exit(main())
