"""The file of a disk cache against a dictionary: what it gives, what it takes on disk, and what damage does to it."""

from __future__ import annotations

import os
import random
import shutil
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lance_io import _kernels
from lance_io.limits import KIB, MIB
from lance_io.store.disk_cache import database_files, range_database
from lance_io.store.disk_cache.fixed_objects import CopyName, NameSpace, is_fixed, table_folder
from lance_io.store.disk_cache.free_blocks import decode_places
from lance_io.store.disk_cache.range_database import CAPACITY_BYTES_MIN, Busy, Damaged, RangeDatabase, Unusable
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMES = NameSpace("store", "me")
KEY = "t.lance/data/000000000000000000000000abcdefabcdefabcdefabcdefab.lance"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RangeDatabase]:
    made = RangeDatabase(str(tmp_path / "cache"), 4 * MIB)
    yield made
    made.close()


def found(database: RangeDatabase, *names: CopyName) -> list[bytes | None]:
    return [None if one is None else bytes(one.data) for one in database.find_many(names).copies]


def files_bytes(database: RangeDatabase) -> int:
    return sum(file.stat().st_size for file in Path(database.folder).iterdir())


def test_ranges_are_given_whole_and_in_part(database: RangeDatabase) -> None:
    dice = random.Random(seed_of(1))
    content = {f"{KEY}{number}": dice.randbytes(20_000) for number in range(4)}
    kept: dict[str, list[tuple[int, int]]] = {}
    for _ in range(30):
        key = dice.choice(list(content))
        start = dice.randrange(20_000)
        end = dice.randrange(start + 1, 20_001)
        database.keep_many([(NAMES.of_range(key, start, end), content[key][start:end])], ())
        kept.setdefault(key, []).append((start, end))
    for key, ranges in kept.items():
        for start, end in ranges:
            assert found(database, NAMES.of_range(key, start, end)) == [content[key][start:end]]
    asked = hits = 0
    for _ in range(300):
        key = dice.choice(list(content))
        start = dice.randrange(20_000)
        end = dice.randrange(start + 1, 20_001)
        (data,) = found(database, NAMES.of_range(key, start, end))
        is_there = any(low <= start and end <= high for low, high in kept.get(key, ()))
        assert data is None or (is_there and data == content[key][start:end])
        asked, hits = asked + is_there, hits + (data is not None)
    assert hits > asked // 2  # a few candidates are looked at


def test_kinds_stores_and_credentials_are_apart(database: RangeDatabase) -> None:
    names = [
        space.of_range(KEY, 0, 4)
        for space in (NAMES, NameSpace("store", "you"), NameSpace("other", "me"), NameSpace("storem", "e"))
    ]
    names += [NAMES.of_object(KEY), NAMES.of_suffix(KEY, 4), NAMES.of_versioned(KEY), NAMES.of_range(KEY + "x", 0, 4)]
    for at, name in enumerate(names):
        assert found(database, name) == [None]
        database.keep_many([(name, b"%04d" % at)], ())
    assert found(database, *names) == [b"%04d" % at for at in range(len(names))]


def test_the_bound_holds_for_all_files_and_the_oldest_go_first(database: RangeDatabase) -> None:
    dice = random.Random(seed_of(2))
    hot = NAMES.of_range(KEY, 0, 20_000)
    database.keep_many([(hot, dice.randbytes(20_000))], ())
    evicted = 0
    names = [NAMES.of_range(f"{KEY}{number}", 0, 50_000) for number in range(400)]
    for at in range(0, len(names), 5):
        (copy,) = database.find_many([hot]).copies
        assert copy is not None
        assert not copy.is_stale  # marked as used with all that were kept since
        evicted += database.keep_many([(name, dice.randbytes(50_000)) for name in names[at : at + 5]], [copy.copy_id])
        assert files_bytes(database) <= database.capacity_bytes
    (copy,) = database.find_many([names[-6]]).copies
    assert copy is not None
    assert copy.is_stale
    there = [data is not None for data in found(database, *names)]
    assert there == sorted(there)  # the latest, and all of those
    assert evicted == there.count(False)
    assert there.count(True) * 50_000 > database.capacity_bytes // 2
    larger = RangeDatabase(database.folder, 12 * MIB)
    for at in range(0, len(names), 5):
        larger.keep_many([(name, dice.randbytes(50_000)) for name in names[at : at + 5]], ())
    larger.close()
    assert files_bytes(larger) > 2 * database.capacity_bytes
    smaller = database
    smaller.keep_many([(NAMES.of_range(KEY, 1, 5), b"abcd")], ())
    assert files_bytes(smaller) <= smaller.capacity_bytes
    assert sum(data is not None for data in found(smaller, *names)) > 10  # those that begin where it ends now


def test_a_reader_that_stays_keeps_writers_out_and_nothing_grows(
    database: RangeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [NAMES.of_range(f"{KEY}{number}", 0, 60_000) for number in range(60)]
    database.keep_many([(names[0], bytes(60_000))], ())
    other = RangeDatabase(database.folder, database.capacity_bytes)
    monkeypatch.setattr(range_database, "WRITE_WAIT_S", 0.0)
    hasty = RangeDatabase(database.folder, database.capacity_bytes)
    with other._reader as connection:
        connection.execute("BEGIN")
        assert connection.execute("SELECT now FROM clock").fetchone() == (1,)
        for name in names:
            with pytest.raises(Busy):
                hasty.keep_many([(name, bytes(60_000))], ())
            assert files_bytes(database) <= database.capacity_bytes
        assert found(database, names[0]) == [bytes(60_000)]  # readers keep nobody out who reads
        connection.execute("COMMIT")
    other.close()
    hasty.keep_many([(names[-1], bytes(60_000))], ())
    assert found(database, names[-1]) == [bytes(60_000)]
    hasty.close()


class Pauses:
    """A module `time` in whose pauses something else goes on."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self._meanwhile = list(meanwhile)
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self._meanwhile:
            self._meanwhile.pop(0)()


def test_readers_and_commits_wait_for_each_other(database: RangeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = NAMES.of_range(KEY, 0, 3), NAMES.of_range(KEY, 3, 6)
    database.keep_many([(one, b"one")], ())
    assert found(database, one) == [b"one"]
    other = RangeDatabase(database.folder, database.capacity_bytes)
    with other._writer as writer, other._reader as reader:
        writer.execute("BEGIN EXCLUSIVE")  # as while a commit writes its pages
        monkeypatch.setattr(database_files, "time", Pauses(lambda: None, lambda: writer.execute("COMMIT")))
        assert found(database, one) == [b"one"]

        reader.execute("BEGIN")
        reader.execute("SELECT * FROM clock").fetchall()
        monkeypatch.setattr(database_files, "time", Pauses(lambda: None, lambda: reader.execute("COMMIT")))
        database.keep_many([(two, b"two")], ())
        assert found(database, one, two) == [b"one", b"two"]

        writer.execute("BEGIN EXCLUSIVE")
        pauses = Pauses()
        monkeypatch.setattr(database_files, "time", pauses)
        with pytest.raises(Busy):
            database.find_many([one])
        assert pauses.now_s == pytest.approx(range_database.READ_WAIT_S, rel=0.02)
        writer.execute("ROLLBACK")
    other.close()
    assert found(database, one, two) == [b"one", b"two"]


def test_bytes_that_are_cut_off_meanwhile_are_not_damaged(
    database: RangeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process that has a smaller bound, between the look into the index and the reading of the bytes."""
    larger = RangeDatabase(database.folder, 12 * MIB)
    names = [NAMES.of_range(f"{KEY}{number}", 0, 500_000) for number in range(20)]
    for name in names:
        larger.keep_many([(name, bytes(500_000))], ())
    read_copies = _kernels.read_copies

    def read_later(*arguments: Any) -> Any:
        database.keep_many([], [])
        return read_copies(*arguments)

    monkeypatch.setattr(_kernels, "read_copies", read_later)
    findings = larger.find_many(names)
    assert sum(copy is None for copy in findings.copies) > 10
    assert findings.damaged == []
    larger.close()


def test_the_journal_is_within_the_bound(database: RangeDatabase) -> None:
    """While a transaction is as large as it can be: as many copies come, go and are marked as are allowed."""
    dice = random.Random(seed_of(8))
    num_copies, length = database.batch_copies_max, 300
    names = [NAMES.of_range(f"{KEY}{dice.random()}", 0, length) for _ in range(60 * num_copies)]
    journal = Path(database.folder, "ranges-1.sqlite-journal")
    most = 0

    def watch(statement: str) -> None:
        nonlocal most
        if statement == "COMMIT":
            most = max(most, journal.stat().st_size)
            assert files_bytes(database) <= database.capacity_bytes

    with database._writer as connection:
        connection.set_trace_callback(watch)
    for at in range(0, len(names), num_copies):
        ids = [copy.copy_id for copy in database.find_many(dice.sample(names, num_copies)).copies if copy is not None]
        database.keep_many([(name, bytes(length)) for name in names[at : at + num_copies]], ids)
    database.remove((), [(name.object_id, None) for name in names])
    assert 0 < most <= database.journal_bytes_max


def test_what_is_no_range_is_replaced_and_removed(database: RangeDatabase) -> None:
    one, two = NAMES.of_versioned("t/_versions/1.manifest"), NAMES.of_versioned("t/_versions/2.manifest")
    database.keep_many([(one, b"old"), (two, b"2")], ())
    database.keep_many([(one, b"new and longer")], ())
    assert found(database, one, two) == [b"new and longer", b"2"]
    database.remove((), [(one.object_id, one.start)])
    assert found(database, one, two) == [None, b"2"]
    database.keep_many([(one, b"again")], ())
    database.remove((), [(one.object_id, None)])
    assert found(database, one, two) == [None, None]


def _filled(folder: Path) -> dict[CopyName, bytes]:
    dice = random.Random(3)
    content = {NAMES.of_range(f"{KEY}{n}", n, n + size): dice.randbytes(size) for n, size in enumerate([5, 900] * 8)}
    content |= {NAMES.of_range(KEY, 0, 30_000): dice.randbytes(30_000)}
    content |= {NAMES.of_versioned(f"t/_versions/{n}.manifest"): dice.randbytes(700) for n in range(6)}
    database = RangeDatabase(str(folder), CAPACITY_BYTES_MIN)
    database.keep_many(list(content.items()), ())
    database.close()
    return content


def _read_damaged(folder: Path, content: dict[CopyName, bytes]) -> tuple[int, int]:
    """How many copies are still there, each of which is right, and how many were told to be damaged or were cut off."""
    database = RangeDatabase(str(folder), CAPACITY_BYTES_MIN)
    try:
        findings = database.find_many(list(content))
    except Damaged:
        database.start_new_files()
        assert found(database, *content) == [None] * len(content)
        database.keep_many(list(content.items()), ())
        assert found(database, *content) == list(content.values())
        return 0, len(content)
    else:
        there = 0
        for copy, right in zip(findings.copies, content.values(), strict=True):
            assert copy is None or bytes(copy.data) == right
            there += copy is not None
        try:
            database.remove(findings.damaged)
            database.keep_many(list(content.items()), ())
            assert all(
                data in (None, right) for data, right in zip(found(database, *content), content.values(), strict=True)
            )
        except Damaged:
            database.start_new_files()
        return there, len(findings.damaged)
    finally:
        database.close()


def _read_changed(folder: Path, file: str, content: dict[CopyName, bytes], changed: bytes) -> tuple[int, int]:
    """What `_read_damaged` says where one of the files has become another."""
    damaged = folder.with_name("damaged")
    shutil.copytree(folder, damaged)
    (damaged / file).write_bytes(changed)
    try:
        return _read_damaged(damaged, content)
    finally:
        shutil.rmtree(damaged)


def test_flipped_bits_are_found_wherever_they_are(tmp_path: Path) -> None:
    content = _filled(tmp_path / "whole")
    dice = random.Random(seed_of(4))
    of_bytes = (tmp_path / "whole" / "ranges-1.bytes").read_bytes()
    for right in content.values():
        flipped = bytearray(of_bytes)
        flipped[of_bytes.index(right) + dice.randrange(len(right))] ^= 1 << dice.randrange(8)
        there, damaged = _read_changed(tmp_path / "whole", "ranges-1.bytes", content, flipped)
        assert (there, damaged) == (len(content) - 1, 1)
    index = (tmp_path / "whole" / "ranges-1.sqlite").read_bytes()
    places = [*range(0, 100, 3)]  # the header of the file, and of its first page
    places += [page + at for page in range(0, len(index), 4096) for at in (0, 1, 3, 8, 9, dice.randrange(4096))]
    places += [dice.randrange(len(index)) for _ in range(40)]
    for place in places:
        flipped = bytearray(index)
        flipped[place] ^= 1 << dice.randrange(8)
        _read_changed(tmp_path / "whole", "ranges-1.sqlite", content, flipped)


def test_files_cut_short_are_begun_anew(tmp_path: Path) -> None:
    content = _filled(tmp_path / "whole")
    for file in ("ranges-1.sqlite", "ranges-1.bytes"):
        whole = (tmp_path / "whole" / file).read_bytes()
        for length in (0, 1, 100, 4095, 4096, 5000, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
            _read_changed(tmp_path / "whole", file, content, whole[:length])


def test_bytes_that_are_gone_or_of_others_are_begun_anew(tmp_path: Path) -> None:
    content = _filled(tmp_path / "cache")
    os.remove(tmp_path / "cache" / "ranges-1.bytes")
    assert _read_damaged(tmp_path / "cache", content) == (0, len(content))
    assert sorted(os.listdir(tmp_path / "cache"))[:2] == ["ranges-2.bytes", "ranges-2.sqlite"]


def test_bytes_that_are_written_over_meanwhile_are_not_given(
    database: RangeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, between the look into the index and the reading of the bytes."""
    names = [NAMES.of_range(f"{KEY}{number}", 0, 1000) for number in range(3)]
    database.keep_many([(name, bytes([number]) * 1000) for number, name in enumerate(names)], ())
    other = RangeDatabase(database.folder, database.capacity_bytes)
    read_copies = _kernels.read_copies

    def read_later(*arguments: Any) -> Any:
        other.remove((), [(names[1].object_id, None)])
        other.keep_many([(NAMES.of_range(KEY, 5, 1005), b"other" * 200)], ())
        return read_copies(*arguments)

    monkeypatch.setattr(_kernels, "read_copies", read_later)
    findings = database.find_many(names)
    assert [copy is None for copy in findings.copies] == [False, True, False]
    assert findings.damaged == []  # it was removed, no more
    monkeypatch.undo()
    assert found(database, names[1], NAMES.of_range(KEY, 5, 1005)) == [None, b"other" * 200]
    other.close()


def test_copies_are_read_to_the_memory_that_is_given(database: RangeDatabase) -> None:
    dice = random.Random(seed_of(5))
    content = dice.randbytes(50_000)
    whole, part = NAMES.of_range(KEY, 0, 50_000), NAMES.of_range(KEY, 20_000, 20_900)
    database.keep_many([(whole, content)], ())
    memories = [memoryview(bytearray(50_000)), memoryview(bytearray(900)), None, memoryview(bytearray(4))]
    findings = database.find_many([whole, part, whole, NAMES.of_range(KEY, 60_000, 60_004)], memories)
    first, second, third, fourth = findings.copies
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.data is memories[0]
    assert first.data == third.data == content
    assert second.data is not memories[1]  # its checksum is that of all of the copy
    assert second.data == content[20_000:20_900]
    assert fourth is None


def test_the_kernel_reads_what_python_has_checksums_of(tmp_path: Path) -> None:
    content = random.Random(seed_of(7)).randbytes(3_000_000)
    (tmp_path / "bytes").write_bytes(content)

    def copy(*runs: tuple[int, int], memory: bytearray | None = None, name: bytes = b"name", wrong: int = 0) -> Any:
        checksum = zlib.crc32(name + b"".join(content[max(0, start) : start + length] for start, length in runs))
        return name, b"".join(struct.pack("<qq", *run) for run in runs), checksum ^ wrong, memory

    memory = bytearray(1_200_000)
    given = [
        (copy((5, 100)), content[5:105]),
        (copy((2_000_000, 700_000), (0, 500_000), memory=memory), True),
        (copy((5, 100), name=b""), content[5:105]),
        (copy((5, 100), wrong=1 << 31), False),
        (copy((2_999_950, 100)), False),  # the file ends before
        (copy((5, 100), memory=bytearray(99)), False),
        (copy((-1, 100)), False),
        (copy((5, -1)), False),
        (copy(((1 << 63) - 1, 100)), False),
        (copy((5, 1 << 62)), False),
        (copy((0, 2_000_001)), False),  # longer than is allowed
        ((b"name", bytes(8), zlib.crc32(b"name"), None), False),
    ]
    with open(tmp_path / "bytes", "rb") as file:
        for threads in (1, 3):
            memory[:] = bytes(len(memory))
            answers = _kernels.read_copies(file.fileno(), [copy for copy, _ in given], 2_000_000, threads)
            assert [answer if type(answer) is bool else bytes(answer) for answer in answers] == [
                one for _, one in given
            ]
            assert memory == content[2_000_000:2_700_000] + content[:500_000]
    with pytest.raises(OSError, match="Bad file descriptor"):
        _kernels.read_copies(1 << 20, [copy((5, 100))], 2_000_000, 1)


def test_one_statement_looks_for_many_copies(database: RangeDatabase) -> None:
    names = [NAMES.of_range(KEY, 10 * number, 10 * number + 5) for number in range(200)]
    for at in range(0, 200, 10):
        database.keep_many([(name, b"%05d" % name.start) for name in names[at : at + 10]], ())
    statements: list[str] = []
    with database._reader as connection:
        connection.set_trace_callback(statements.append)
        assert found(database, *names) == [b"%05d" % name.start for name in names]
        connection.set_trace_callback(None)
    assert sum(" FROM copy " in statement for statement in statements) == 4  # 64 each


def test_blocks_are_used_again_however_they_were_freed(database: RangeDatabase) -> None:
    """Against a list of which block belongs to whom; the sum of all is what the file has."""
    dice = random.Random(seed_of(6))
    kept: dict[CopyName, bytes] = {}
    for number in range(60):
        new = {
            NAMES.of_range(f"{KEY}{number} {size}", 0, size): dice.randbytes(size) for size in range(500, 9000, 2500)
        }
        database.keep_many(list(new.items()), ())
        kept |= new
        for name in dice.sample(list(kept), 3 if number < 55 else 8):
            database.remove((), [(name.object_id, name.start)])
            del kept[name]
    large = NAMES.of_range(KEY, 0, 60_000)  # in more places than one
    kept[large] = dice.randbytes(60_000)
    database.keep_many([(large, kept[large])], ())
    assert found(database, *kept) == list(kept.values())
    with database._reader as connection:
        owners = [0] * database.blocks_max
        for (places,) in connection.execute("SELECT places FROM copy"):
            for block, blocks in decode_places(places):
                owners[block : block + blocks] = [owner + 1 for owner in owners[block : block + blocks]]
        runs = connection.execute("SELECT block, blocks FROM free ORDER BY block").fetchall()
        for block, blocks in runs:
            owners[block : block + blocks] = [owner + 1 for owner in owners[block : block + blocks]]
        assert owners == [0] + [1] * (database.blocks_max - 1)  # the first is that of the key
        assert all(sum(one) < other[0] for one, other in pairwise(runs))  # joined
        assert connection.execute("SELECT free_blocks FROM clock").fetchone() == (sum(blocks for _, blocks in runs),)
    assert len(runs) > 1


def test_others_go_on_with_the_file_that_was_begun_anew(database: RangeDatabase) -> None:
    name = NAMES.of_range(KEY, 0, 3)
    database.keep_many([(name, b"abc")], ())
    other = RangeDatabase(database.folder, database.capacity_bytes)
    assert found(other, name) == [b"abc"]
    other.start_new_files()
    assert sorted(os.listdir(database.folder))[:2] == ["ranges-2.bytes", "ranges-2.sqlite"]
    assert found(database, name) == [None]
    database.keep_many([(name, b"abc")], ())
    assert found(other, name) == [b"abc"]
    other.close()
    shutil.rmtree(database.folder)
    assert found(database, name) == [None]
    database.keep_many([(name, b"abc")], ())
    assert found(database, name) == [b"abc"]


def test_a_folder_that_cannot_be_is_said_to_be_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    database = RangeDatabase(str(tmp_path / "file" / "below"), 4 * MIB)
    with pytest.raises(Unusable):
        database.find_many([NAMES.of_range(KEY, 0, 3)])
    for name in ("ranges-1.bytes", "ranges-1.sqlite"):
        (tmp_path / name).mkdir(0o700)
        (tmp_path / name / name).mkdir()
        if name == "ranges-1.sqlite":  # of which there are bytes
            (tmp_path / name / "ranges-1.bytes").touch()
        database = RangeDatabase(str(tmp_path / name), 4 * MIB)
        with pytest.raises(Unusable):
            database.keep_many([], ())


def test_only_the_owner_may_look(database: RangeDatabase) -> None:
    database.keep_many([], ())
    assert os.stat(database.folder).st_mode & 0o777 == 0o700


HEX26 = "abcdef0123456789abcdef0123"
UUID = "0e984725-c51c-4bf4-9960-e1c80e27aba0"


@pytest.mark.parametrize(
    ("key", "folder"),
    [
        (f"a/t.lance/data/{'01' * 12}{HEX26}.lance", "a/t.lance"),
        (f"data/{UUID}.lance", ""),
        (f"t/data/{UUID.replace('-', '')}.lance", "t"),
        (f"t/data/{'01' * 12}{HEX26}/0000001.blob", "t"),
        ("t/tree/b/_deletions/3-17-16437282748.arrow", "t/tree/b"),
        ("t/_deletions/3-17-16437282748.bin", "t"),
        (f"t/_transactions/7-{UUID}.txn", "t"),
        (f"t/_indices/{UUID}/index.idx", "t"),
        (f"t/data/_indices/{UUID}/pages/1", "t/data"),
        ("t/data/part-0.lance", None),
        (f"t/data/{UUID}", None),
        (f"t/other/{UUID}.lance", None),
        (f"t/_indices/{UUID}", None),
        ("t/_versions/1.manifest", None),
        ("t/_versions/18446744073709551614.manifest", None),
        ("t/_refs/tags/a.json", None),
        ("t/_versions/latest_version_hint.json", None),
        (f"t/_transactions/{UUID}", None),
    ],
)
def test_which_objects_never_change(key: str, folder: str | None) -> None:
    assert is_fixed(key) == (folder is not None)
    assert table_folder(key) == folder


def test_names_are_not_told_by_the_disk(database: RangeDatabase) -> None:
    space = NameSpace("s3://bucket@aws", "key AKIDEXAMPLE")
    database.keep_many([(space.of_range(KEY, 0, 3), b"abc")], ())
    database.close()
    held = b"".join(file.read_bytes() for file in Path(database.folder).iterdir())
    assert b"AKIDEXAMPLE" not in held
    assert b"t.lance" not in held


def test_sizes_within_the_bound() -> None:
    for capacity in (CAPACITY_BYTES_MIN, 5 * MIB, 100 * MIB, 4096 * MIB, 1 << 45):
        database = RangeDatabase("/nowhere", capacity)
        assert database.batch_bytes_max > 0
        assert database.batch_copies_max > 0
        held_bytes = database.pages_max * 4096 + database.blocks_max * KIB
        assert held_bytes + database.journal_bytes_max <= capacity
        assert held_bytes > capacity // 2
