"""What a process asks of the file system below a folder, in order, as strace tells it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

Kind = Literal["create", "write", "fsync", "link", "rename", "exchange", "unlink", "mkdir"]
TRACED = (
    "openat,mkdir,mkdirat,write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,link,linkat,rename"
)
TRACED += ",renameat,renameat2,unlink,unlinkat,ftruncate,copy_file_range,sendfile"
_KINDS: dict[str, Kind] = {
    "mkdir": "mkdir",
    "mkdirat": "mkdir",
    "write": "write",
    "pwrite64": "write",
    "writev": "write",
    "pwritev": "write",
    "pwritev2": "write",
    "fsync": "fsync",
    "link": "link",
    "linkat": "link",
    "rename": "rename",
    "renameat": "rename",
    "renameat2": "rename",
    "unlink": "unlink",
    "unlinkat": "unlink",
}
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FD = re.compile(r"^\d+<([^>]*)>")


@dataclass(frozen=True)
class Call:
    """One system call that succeeded.

    path    what it is about
    target  the new name of a link or rename, the other name of an exchange
    """

    kind: Kind
    path: str
    target: str = ""


def can_trace() -> bool:
    """Whether strace is there and may trace."""
    strace = shutil.which("strace")
    if strace is None:
        return False
    return subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


def record(program: str, folder: Path, *, env: dict[str, str] | None = None) -> list[Call]:
    """Run a Python program under strace; what it asked for below `folder`, and of the folder above.

    Fails where strace cannot run.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise RuntimeError(
            "the order of system calls is recorded by strace, which is not installed: apt install strace"
        )
    log = folder.parent / f"{folder.name}.strace"
    command = [strace, "-f", "--seccomp-bpf", "-y", "-s", "0", "-o", str(log), "-e", f"trace={TRACED}"]
    subprocess.run(
        [*command, sys.executable, "-c", program], check=True, timeout=120, env={**os.environ, **(env or {})}
    )
    above = str(folder.parent)
    return [call for call in parse(log.read_text()) if f"{call.path}/".startswith(f"{folder}/") or call.path == above]


def parse(text: str) -> list[Call]:
    """The calls of a log, in the order in which they ended."""
    calls: list[Call] = []
    begun: dict[str, str] = {}
    for line in text.splitlines():
        process, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if (resumed := _RESUMED.match(rest)) is not None:
            rest = begun.pop(process) + resumed[1]
        if (match := _CALL.match(rest)) is not None and not match[3].startswith("-"):
            calls += _call(match[1], match[2])
    return calls


def _call(name: str, arguments: str) -> list[Call]:
    texts = _TEXT.findall(arguments)
    if name == "openat":
        return [Call("create", texts[0])] if "O_CREAT" in arguments else []
    if name == "sync_file_range":  # begins what may be done at any time anyway, and promises nothing
        return []
    if name not in _KINDS:
        raise AssertionError(f"nothing is known about the effect of {name}({arguments})")
    kind = "exchange" if "RENAME_EXCHANGE" in arguments else _KINDS[name]
    if kind in ("write", "fsync"):
        fd = _FD.match(arguments)
        return [Call(kind, fd[1])] if fd is not None else []
    return [Call(kind, *texts)]
