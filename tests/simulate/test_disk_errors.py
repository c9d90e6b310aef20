"""Every system call of a write to the local disk fails: the table is the old one or the new one, as its writer is told.

A call fails before it has done anything (a full disk, refused access), or after (an answer that a network file system
lost, which closing a file may tell as well). `LANCE_IO_SIMULATE` is the size of what is tried in samples: of the calls
before the manifest. All those that make it are tried.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import CommitUnknownError, LanceError
from lance_io.store.local import atomic_writes
from lance_io.store.local.system_calls import TEMPORARY_PREFIX
from tests.simulate.world import SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

STEP: Final = max(1, 16 // SIZE)
BLOB: Final = lance_io.blob_field("b", inline_size_threshold=1, dedicated_size_threshold=10)
SCHEMA: Final = pa.schema([("a", pa.int64()), BLOB])
CALLS: Final = frozenset("open mkdir makedirs pwritev pwrite fsync link replace unlink close".split())
NO_UNDOING: Final = frozenset({"unlink", "close"})  # which fail while something is removed, that stays then


class FailingSystem:
    """The module `os`, of which one call that changes files fails.

    fails_at     its number; None: none does
    is_done      it has been done nevertheless, as a file is closed in any case
    knows_links  whether there are hard links
    """

    def __init__(
        self, fails_at: int | None = None, code: int = 0, *, is_done: bool = False, knows_links: bool = True
    ) -> None:
        self.fails_at, self.code, self.is_done, self.knows_links = fails_at, code, is_done, knows_links
        self.seen: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        return (lambda *args, **how: self._call(name, function, args, how)) if name in CALLS else function

    def _call(self, name: str, function: Callable[..., Any], args: Any, how: Any) -> Any:
        number = len(self.seen)
        self.seen.append((name, args[0] if isinstance(args[0], str) else ""))
        if name == "link" and not self.knows_links:
            raise OSError(errno.EPERM, "no links here")
        if number != self.fails_at:
            return function(*args, **how)
        if self.is_done or name == "close":
            function(*args, **how)
        raise OSError(self.code, os.strerror(self.code))


def rows(start: int) -> pa.Table:
    """Four rows, with a blob in a shared file and others in files of their own."""
    blobs = [b"x" * (5 if number % 4 else 15) for number in range(4)]
    return pa.table([pa.array(range(start, start + 4)), lance_io.blob_array(blobs)], schema=SCHEMA)


def append(uri: str, options: dict[str, str]) -> None:
    lance_io.write_dataset(rows(10), uri, mode="append", max_rows_per_file=2, storage_options=options)


def append_async(uri: str, options: dict[str, str]) -> None:
    write = lance_io.AsyncDataset.write(rows(10), uri, mode="append", max_rows_per_file=2, storage_options=options)
    asyncio.run(write)


def delete(uri: str, options: dict[str, str]) -> None:
    lance_io.dataset(uri, storage_options=options).delete("a % 4 = 1")


CHANGES: Final = {
    "append": (append, [0, 1, 2, 3, 10, 11, 12, 13]),
    "append later": (append_async, [0, 1, 2, 3, 10, 11, 12, 13]),
    "delete": (delete, [0, 2, 3]),
}


KINDS: Final = {  # error, whether the call has been done, whether there are hard links
    "full": (errno.ENOSPC, False, True),
    "refused": (errno.EACCES, False, True),
    "lost answer": (errno.EIO, True, True),
    "without links": (errno.ENOSPC, False, False),
}
TRIED: Final = [
    *(("append", kind) for kind in KINDS),
    ("append later", "refused"),
    ("delete", "refused"),
    ("delete", "lost answer"),
]


def files(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of four rows."""
    path = tmp_path_factory.mktemp("disk") / "t"
    lance_io.write_dataset(rows(0), path, durability="none")
    return path


@pytest.mark.parametrize("durability", ["full", "none"])
@pytest.mark.parametrize(("name", "kind"), TRIED)
def test_any_call_may_fail(
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: str,
    durability: str,
) -> None:
    change, expected = CHANGES[name]
    code, is_done, knows_links = KINDS[kind]
    if not knows_links:
        monkeypatch.setattr(atomic_writes, "_renameat2", None)

    def tried(fails_at: int | None) -> tuple[FailingSystem, Path, LanceError | None]:
        root = Path(shutil.copytree(original, tmp_path / f"{fails_at}"))
        system = FailingSystem(fails_at, code, is_done=is_done, knows_links=knows_links)
        with monkeypatch.context() as patch:
            patch.setattr(atomic_writes, "os", system)
            patch.setattr("lance_io.store.local.disk.os", system)
            patch.setattr(atomic_writes.FOLDERS, "_durable", {})
            try:
                change(str(root), {"durability": durability})
            except LanceError as error:
                return system, root, error
        return system, root, None

    system, _, error = tried(None)
    assert error is None
    calls = system.seen
    decisive = next(number for number, (_, path) in enumerate(calls) if "/_versions/" in path)
    for number in sorted({*range(0, decisive, STEP), *range(decisive, len(calls))}):
        if is_done and calls[number][0] == "open":
            continue  # nobody has heard of such a thing
        system, root, error = tried(number)
        assert len(system.seen) > number
        table = lance_io.dataset(root)
        found = (table.version, table.to_table(blob_handling="all_binary")["a"].to_pylist())
        left = files(root) - files(original)
        if error is None:
            assert found == (2, expected), calls[number]
        elif not isinstance(error, CommitUnknownError):
            assert found == (1, [0, 1, 2, 3]), (calls[number], error)
            left = {path for path in left if path.parts[0] != "_deletions"}
        if calls[number][0] in NO_UNDOING:
            left = {path for path in left if not path.name.startswith(TEMPORARY_PREFIX)}
        assert not any(path.name.startswith(TEMPORARY_PREFIX) for path in left), calls[number]
        assert not left or found[0] == 2, (calls[number], error)
        shutil.rmtree(root)
