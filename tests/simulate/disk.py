"""A disk that loses what nobody flushed: every state that a loss of power may leave behind.

The rules are those of POSIX and no kinder. The content of a file is safe once the file was flushed after its last
write, its name once the folder was; else a name may be there or not, whatever became of others, and a file may be
empty, cut, or whole.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulate.syscalls import Call

FOLDER = -1


@dataclass
class _File:
    content: bytes
    is_safe: bool = False


@dataclass
class Disk:
    """Names and files, as programs see them and as the disk has them.

    contents  what every name that is written to holds in the end
    """

    contents: dict[str, bytes]
    names: dict[str, int] = field(default_factory=dict)
    safe_names: dict[str, int] = field(default_factory=dict)
    files: dict[int, _File] = field(default_factory=dict)
    pending: list[dict[str, int | None]] = field(default_factory=list)  # changes of names, not flushed

    @classmethod
    def of(cls, root: Path, contents: dict[str, bytes]) -> Disk:
        """A disk with everything below a folder, safe."""
        disk = cls(contents)
        for folder, _, files in os.walk(root):
            disk.names[folder] = FOLDER
            for name in files:
                disk.files[len(disk.files)] = _File(Path(folder, name).read_bytes(), is_safe=True)
                disk.names[f"{folder}/{name}"] = len(disk.files) - 1
        disk.names[str(root.parent)] = FOLDER
        disk.safe_names = dict(disk.names)
        return disk

    def apply(self, call: Call) -> None:
        """What a system call does."""
        match call.kind:
            case "mkdir":
                self._rename({call.path: FOLDER})
            case "create":
                if call.path not in self.names:
                    self.files[len(self.files)] = _File(self.contents[call.path])
                    self._rename({call.path: len(self.files) - 1})
            case "write":
                self.files[self.names[call.path]].is_safe = False
            case "fsync" if self.names[call.path] == FOLDER:
                self._flush_names(call.path)
            case "fsync":
                self.files[self.names[call.path]].is_safe = True
            case "link":
                self._rename({call.target: self.names[call.path]})
            case "rename":
                self._rename({call.target: self.names[call.path], call.path: None})
            case "exchange":
                self._rename({call.target: self.names[call.path], call.path: self.names[call.target]})
            case "unlink":
                self._rename({call.path: None})

    def _rename(self, change: dict[str, int | None]) -> None:
        self.pending.append(change)
        _change(self.names, change)

    def _flush_names(self, folder: str) -> None:
        flushed = [change for change in self.pending if os.path.dirname(next(iter(change))) == folder]
        self.pending = [change for change in self.pending if change not in flushed]
        for change in flushed:
            _change(self.safe_names, change)

    # -- after the power is back -------------------------------------------------------------------------------------

    def states(self) -> Iterator[dict[str, bytes | None]]:
        """What may be there, by path; None is a folder. Every state once."""
        seen = set()
        for changes in self._survivors():
            names = dict(self.safe_names)
            for change in changes:
                _change(names, change)
            for part in (0, 1, 2):  # halves of what was not flushed
                state = {
                    path: None if number == FOLDER else self._content(number, part)
                    for path, number in names.items()
                    if os.path.dirname(path) in names or number == FOLDER
                }
                state = {path: content for path, content in state.items() if _has_folders(path, names)}
                frozen = frozenset(state.items())
                if frozen not in seen:
                    seen.add(frozen)
                    yield state

    def _survivors(self) -> Iterator[Sequence[dict[str, int | None]]]:
        """Changes of names that made it: none, all, each alone, all but each, the first few."""
        changes = self.pending
        yield []
        yield changes
        for place, change in enumerate(changes):
            yield [change]
            yield [*changes[:place], *changes[place + 1 :]]
            yield changes[:place]

    def _content(self, number: int, part: int) -> bytes:
        file = self.files[number]
        return file.content if file.is_safe else file.content[: len(file.content) * part // 2]


def _change(names: dict[str, int], change: dict[str, int | None]) -> None:
    for path, number in change.items():
        if number is None:
            names.pop(path, None)
        else:
            names[path] = number


def _has_folders(path: str, names: dict[str, int]) -> bool:
    """Whether every folder above is there, up to one that all others are below."""
    top = min(names, key=len)
    while len(path) > len(top):
        path = os.path.dirname(path)
        if path not in names:
            return False
    return True


def write_state(state: dict[str, bytes | None], root: Path, copy: Path) -> None:
    """Make the files of a state, with `copy` in the place of `root`."""
    for path, content in sorted(state.items()):
        if not f"{path}/".startswith(f"{root}/"):
            continue
        target = Path(f"{copy}{path[len(str(root)) :]}")
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.write_bytes(content)
