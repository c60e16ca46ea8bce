"""``python -m nextlevelbert`` is the command `nextlevelbert`, which does not import the package for
its help.
"""

import sys

from nextlevelbert_command import main

if __name__ == "__main__":
    sys.exit(main())
