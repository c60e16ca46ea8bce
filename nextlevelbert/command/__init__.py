"""The command `nextlevelbert`, whose work is in `command`.

Importing this package loads nothing else, so that Ctrl-C ends the command without a traceback also
while its modules are imported.
"""

import sys


def main(argv: list[str] | None = None) -> int:
    """Runs the sub-command of a command line, by default that of this process.

    Returns:
        The exit status.
    """
    try:
        from . import command

        return command.main(argv)
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to continue.", file=sys.stderr)
        return 130
