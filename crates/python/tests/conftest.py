"""Where the bundled data is."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parents[3]
