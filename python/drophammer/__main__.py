"""``python -m drophammer``: the program, with the same arguments."""

import os
import sys

from drophammer._program import ProgramNotFound, program


def main() -> None:
    """Replaces this process with the program, so that signals and the exit code are its own."""
    try:
        path = program()
    except ProgramNotFound as error:
        sys.exit(f"error: {error}")
    os.execv(path, [str(path), *sys.argv[1:]])


if __name__ == "__main__":
    main()
