"""The ``sporran`` command: ``python -m sporran`` is the same."""

from __future__ import annotations

import signal
import sys

from . import _sporran


def main() -> int:
    """Runs the program with the command line of the process, and gives its exit code."""
    # The program has its own answer to Ctrl-C, and a closed pipe is no failure.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _sporran.program(["sporran", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
