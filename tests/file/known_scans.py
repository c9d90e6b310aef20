"""Scans of files that may be known, counted, and what comes of them where a file is damaged."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import lance_io
from lance_io.errors import FormatError, LanceError
from lance_io.file.scan.templates.file_templates import FileTemplates
from tests import products
from tests.seeds import seed_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DAMAGES: Final = 200 if products.ALL else 50


class Counted:
    """How many files were known, and how many were read in general."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known = self.missed = 0
        read, missed = FileTemplates.read, FileTemplates.record_miss

        def noted_read(known: FileTemplates, files: Any) -> Any:
            answer = read(known, files)
            self.known += answer[0]
            return answer

        def noted_missed(known: FileTemplates) -> None:
            self.missed += 1
            missed(known)

        monkeypatch.setattr(FileTemplates, "read", noted_read)
        monkeypatch.setattr(FileTemplates, "record_miss", noted_missed)


def opened(folder: Path) -> Any:
    """The table, of which nothing is known yet."""
    return lance_io.dataset(str(folder), session=lance_io.Session())


def outcome(dataset: Any, **options: Any) -> Any:
    """All rows, or what is said instead."""
    try:
        return dataset.scanner(**options).to_table()
    except LanceError as error:
        return type(error), str(error)


def check_damage(folder: Path, seed: int) -> None:
    """Whatever bytes of a file of a table are others: the outcome is that of reading it by itself."""
    dice = random.Random(seed_of(seed))
    files = sorted((folder / "data").iterdir())
    victim = files[dice.randrange(len(files))]
    sound = victim.read_bytes()
    places = [dice.randrange(-len(sound), 0) for _ in range(DAMAGES)]
    places += [dice.randrange(-400, 0) for _ in range(DAMAGES // 2)]
    kinds = set()
    for place in places:
        damaged = bytearray(sound)
        damaged[place] ^= 1 << dice.randrange(8)
        victim.write_bytes(damaged)
        together, alone = outcome(opened(folder)), outcome(opened(folder), fragment_readahead=1)
        if isinstance(alone, tuple):
            assert together == alone, place
        else:
            assert together.equals(alone), place
        kinds.add(isinstance(alone, tuple))
    assert kinds == {True, False}
    victim.write_bytes(sound[:-100])
    kind, text = outcome(opened(folder))
    assert kind is FormatError and victim.name in text
    victim.write_bytes(sound)
