"""The CPUs of a task or an actor as the library's threads."""

from __future__ import annotations

import os
from typing import Any


def assigned() -> int:
    """The whole CPUs that Ray assigned to this task or actor; at least 1."""
    import ray

    context: Any = ray.get_runtime_context()
    cpus = context.get_assigned_resources().get("CPU", 1)
    return max(1, int(cpus))


def use_assigned() -> None:
    """Limits the library's threads to the assigned CPUs. The library starts its threads at its first call in a process."""
    os.environ["RAYON_NUM_THREADS"] = str(assigned())
