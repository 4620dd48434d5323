"""The program in a process that ends with its parent: ``python -m sporran._child ARGUMENTS``.

The parent holds the other end of standard input, which the system closes when the parent ends in any way.
"""

from __future__ import annotations

import os
import sys
import threading

from .__main__ import main


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main())
