"""Spilled bytes while a cancelled call closes their file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_io.changes.join.spill_file import SpillFile

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_file_that_is_closed_while_it_is_written_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its descriptor stays taken until the thread that writes is done."""
    file, others, write = SpillFile(), [], os.pwrite
    assert file.append(np.arange(4, dtype=np.int16)) == 0
    assert file.read(2, 4).tolist() == [1, 0, 2, 0]

    def closed_meanwhile(descriptor: int, data: Any, offset: int) -> int:
        file.close()
        others.append((tmp_path / "other").open("w+b"))
        return write(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", closed_meanwhile)
        file.append(np.ones(8, np.uint8))
    (other,) = others
    with other:
        assert other.read() == b""
