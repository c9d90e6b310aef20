"""Reading ranges of a local file, against slices of the bytes that were written."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_io._kernels import read_files, read_joined, read_once, read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = 1000
LARGE = 6 << 20


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def ints(buffer: Any) -> list[int]:
    values: list[int] = np.frombuffer(buffer, np.int64).tolist()
    return values


@pytest.fixture(scope="module")
def content() -> bytes:
    return np.random.default_rng(7).bytes(LARGE)


@pytest.fixture(scope="module")
def path(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pread") / "bytes"
    path.write_bytes(content)
    return str(path)


@pytest.fixture(scope="module")
def fd(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


RANGES = st.lists(
    st.tuples(st.integers(0, SMALL), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))), max_size=40
)


@settings(max_examples=300, deadline=None)
@given(
    ranges=RANGES,
    gap=st.integers(-1, 50),
    in_order=st.booleans(),
    scratch_bytes=st.none() | st.integers(0, 4000),
)
def test_every_range_is_where_its_offset_says(
    fd: int, content: bytes, ranges: list[tuple[int, int]], gap: int, in_order: bool, scratch_bytes: int | None
) -> None:
    if in_order:
        ranges.sort()
    starts, ends = i64(*(start for start, _ in ranges)), i64(*(end for _, end in ranges))
    scratch = None if scratch_bytes is None else bytearray(scratch_bytes)
    buffer, raw_offsets, num_reads, num_bytes = read_ranges(fd, starts, ends, gap, 1, scratch)
    offsets = ints(raw_offsets)
    assert (buffer is None) == (scratch is not None and len(scratch) >= num_bytes)
    if buffer is None:
        assert scratch is not None
        memory = bytes(scratch)
    else:
        memory = bytes(buffer)
        assert len(memory) == num_bytes
    for (start, end), offset in zip(ranges, offsets, strict=True):
        assert memory[offset : offset + end - start] == content[start:end]

    real = [(start, end) for start, end in ranges if start < end]
    runs = runs_of(real, gap)
    if len(runs) == len(real):  # nothing merged: back to back, in the order given
        first = min(offsets[index] for index, (start, end) in enumerate(ranges) if start < end) if real else 0
        assert memory[first : first + num_bytes] == b"".join(content[start:end] for start, end in ranges)
    assert num_reads == len(runs)
    assert num_bytes == sum(end - start for start, end in runs)


def runs_of(ranges: list[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if gap >= 0 and runs and start - runs[-1][1] <= gap:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


def memory_of(buffer: Any, scratch: bytearray | None) -> memoryview:
    """Where the bytes went."""
    return memoryview(buffer if scratch is None else scratch)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("with_scratch", [False, True])
def test_large_reads_in_threads(fd: int, content: bytes, threads: int, with_scratch: bool) -> None:
    starts, ends = i64(5, LARGE - 100, 17), i64(LARGE - 5, LARGE, 3 << 20)
    scratch = bytearray(2 * LARGE) if with_scratch else None
    buffer, offsets, num_reads, num_bytes = read_ranges(fd, starts, ends, -1, threads, scratch)
    expected = b"".join(content[start:end] for start, end in zip(starts, ends, strict=True))
    assert (num_reads, num_bytes) == (3, len(expected))
    first, *others = ints(offsets)
    assert others == [first + LARGE - 10, first + LARGE + 90]
    memory = bytes(memory_of(buffer, scratch))
    assert memory[first : first + num_bytes] == expected
    assert first == 0 or with_scratch


@pytest.mark.parametrize("at", [0, 1, 63, 64, 4100])
@pytest.mark.parametrize("with_scratch", [False, True])
def test_memory_is_aligned_as_the_file_is(fd: int, content: bytes, at: int, with_scratch: bool) -> None:
    scratch = bytearray(5000) if with_scratch else None
    buffer, offsets, _, _ = read_ranges(fd, i64(at), i64(at + 4096), 0, 1, scratch)
    memory = np.frombuffer(memory_of(buffer, scratch), np.uint8)
    first = ints(offsets)[0]
    assert (memory.ctypes.data + first - at) % 64 == 0
    assert memory[first : first + 4096].tobytes() == content[at : at + 4096]


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_many_reads_in_threads(fd: int, content: bytes, threads: int) -> None:
    starts = np.random.default_rng(threads).integers(0, LARGE - 500, 1000)
    ends = starts + np.random.default_rng(threads + 1).integers(0, 500, 1000)
    buffer, _, num_reads, _ = read_ranges(fd, starts, ends, -1, threads, None)
    assert buffer is not None
    assert bytes(buffer) == b"".join(content[start:end] for start, end in zip(starts, ends, strict=True))
    assert num_reads == np.count_nonzero(starts < ends)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("num_reads", [1, 100])
@pytest.mark.parametrize("spare", [None, -1, 0, 1000])
def test_files_side_by_side(fd: int, content: bytes, threads: int, num_reads: int, spare: int | None) -> None:
    rng = np.random.default_rng(threads)
    wanted = [np.sort(rng.integers(0, LARGE - 64, num_reads)).astype(np.int64) for _ in range(9)]
    files = [(fd, starts, starts + 64) for starts in wanted]
    found = read_files(files, 100, threads, None)
    if spare is not None:
        room = sum(num_bytes + 64 for _, _, _, num_bytes in found) + spare
        scratch = np.zeros(room, dtype=np.uint8)
        found = read_files(files, 100, threads, scratch)
        assert {buffer is None for buffer, _, _, _ in found} == {spare >= 0}
    for starts, (buffer, offsets, count, num_bytes) in zip(wanted, found, strict=True):
        memory = memoryview(scratch if buffer is None else buffer)
        assert [bytes(memory[at : at + 64]) for at in ints(offsets)] == [
            content[start : start + 64] for start in starts.tolist()
        ]
        assert (count, num_bytes) == read_ranges(fd, starts, starts + 64, 100, 1, None)[2:]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("num_reads", [1, 100])
def test_files_into_one_memory(fd: int, content: bytes, path: str, threads: int, num_reads: int) -> None:
    """Those that are open and those that are named, and a name of nothing that nothing is wanted of."""
    rng = np.random.default_rng(num_reads)
    files: list[int | str] = [fd, path, path, fd, f"{path} is gone", path]
    counts = [num_reads, 0, 2 * num_reads, 5, 0, num_reads]
    bounds = np.cumsum([0, *counts]).tolist()
    starts = rng.integers(0, LARGE - 64, bounds[-1])
    room = bounds[-1] * (64 + 100) + 64 * len(files)
    memory = np.zeros(room, np.uint8)
    offsets, count, num_bytes = read_joined(files, starts, starts + 64, bounds, 100, threads, memory)
    assert [bytes(memory[at : at + 64]) for at in ints(offsets)] == [
        content[start : start + 64] for start in starts.tolist()
    ]
    parts = [starts[first:end] for first, end in pairwise(bounds)]
    alone = [read_ranges(fd, part, part + 64, 100, 1, None)[2:] for part in parts]
    assert (count, num_bytes) == (sum(one[0] for one in alone), sum(one[1] for one in alone))


def test_memory_and_bounds_of_files_are_checked(fd: int) -> None:
    memory = np.zeros(2 * (10 + 64), np.uint8)
    starts, ends = i64(0, 20), i64(10, 30)
    for bounds in ([0, 1], [0, 2, 1], [0, 1, 3], [1, 1, 2], [0, 1, 1], [0, 1, 2, 2]):
        with pytest.raises(ValueError, match="bounds"):
            read_joined([fd, fd], starts, ends, bounds, 0, 1, memory)
    with pytest.raises(ValueError, match="too little memory"):
        read_joined([fd, fd], starts, ends, [0, 1, 2], 0, 1, memory[1:].copy())
    with pytest.raises(ValueError, match=r"range|ends"):
        read_joined([fd, fd], starts, i64(10, 10), [0, 1, 2], 0, 1, memory)
    assert read_joined([fd, fd], starts, ends, [0, 1, 2], 0, 1, memory)[1:] == (2, 20)
    assert read_joined([], i64(), i64(), [0], 0, 1, memory)[1:] == (0, 0)


def test_one_file_that_ends_early_fails_all(fd: int, path: str) -> None:
    for other in (fd, path):
        with pytest.raises(EOFError, match=f"ends at byte {LARGE}"):
            read_files([(fd, i64(0), i64(10)), (other, i64(LARGE - 5), i64(LARGE + 5))], 0, 4, None)


@pytest.mark.parametrize("name", ["", "gone", "pipe"])
def test_names_of_what_is_no_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError if name == "gone" else IsADirectoryError):
        read_files([(str(tmp_path / name), i64(0), i64(1))], 0, 4, None)


def test_nothing_to_read(fd: int) -> None:
    for ranges in (i64(), i64(4, 4)):
        buffer, offsets, num_reads, num_bytes = read_ranges(fd, ranges, ranges, 0, 4, None)
        assert (bytes(memory_of(buffer, None)), len(offsets) // 8, num_reads, num_bytes) == (b"", len(ranges), 0, 0)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_file_that_ends_inside_a_range(fd: int, threads: int) -> None:
    with pytest.raises(EOFError, match=f"ends at byte {LARGE}, expected 21 bytes from {LARGE - 20} on"):
        read_ranges(fd, i64(0, LARGE - 20), i64(10, LARGE + 1), 0, threads, None)
    with pytest.raises(EOFError, match=f"ends at byte {LARGE}|ends at byte {LARGE + 5}"):
        read_ranges(fd, i64(0), i64(LARGE + 10), 0, threads, None)


def test_errors_of_the_system_keep_their_number(tmp_path: Any) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError) as caught:
            read_ranges(descriptor, i64(0), i64(1), 0, 1, None)
        assert caught.value.errno == errno.EISDIR
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("starts", "ends"), [([-1], [3]), ([4], [3]), ([4, 5], [6]), ([0, 1], [2**63 - 1, 2**63 - 1])])
def test_refuses_ranges_that_are_none(fd: int, starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match=r"range|ends"):
        read_ranges(fd, i64(*starts), i64(*ends), -1, 1, None)


def test_refuses_memory_it_cannot_have(fd: int) -> None:
    with pytest.raises(MemoryError):
        read_ranges(fd, i64(0), i64(2**62), 0, 1, None)
    with pytest.raises(ValueError, match="not writable"):
        read_ranges(fd, i64(0), i64(2), 0, 1, b"read-only")
    with pytest.raises(ValueError, match="not a file descriptor"):
        read_ranges(-1, i64(0), i64(2), 0, 1, None)


def test_files_that_are_opened_for_one_read(tmp_path: Path) -> None:
    """Bytes and sizes, of ends too; None for what is no file, ends before, or is a pipe, which must not hang."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_bytes(b"")
    names = []
    for number in range(100):
        names.append(os.fsencode(tmp_path / f"{number}"))
        Path(os.fsdecode(names[-1])).write_bytes(bytes([number]) * (number + 3))
    wanted = [(name, *((1, number + 3) if number % 2 else (-2, 0))) for number, name in enumerate(names)]
    others = [(os.fsencode(tmp_path / name), 0, 1) for name in ("pipe", "empty", "missing", ".")]
    others += [(names[5], 0, 9), (names[5], 4, 3), (b"a\0b", 0, 1), (b"", 0, 1), (names[5], -(1 << 63), 0)]
    before = len(os.listdir("/dev/fd"))
    for threads in (1, 4):
        found = read_once([*wanted, *others], threads)
        expected = [(bytes([n]) * (n + 2 if n % 2 else 2), n + 3) for n in range(100)]
        assert [(bytes(one[0]), one[1]) for one in found[:100] if one is not None] == expected
        assert found[100:-1] == [None] * 8
        assert found[-1] is not None and bytes(found[-1][0]) == bytes([5]) * 8
    assert len(os.listdir("/dev/fd")) == before
