"""``python -m nextlevelbert`` is the command `nextlevelbert`."""

import sys

from nextlevelbert_command import main

if __name__ == "__main__":
    sys.exit(main())
