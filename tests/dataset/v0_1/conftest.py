"""What the tests of this folder share."""

from __future__ import annotations

import lance
import pytest


@pytest.fixture
def as_pylance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files say who wrote them; all other bytes are to be compared."""
    monkeypatch.setattr("lance_io.file.write.batched_writer.WRITER", ("lance", lance.__version__))
