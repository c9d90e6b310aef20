"""Who may have written a disk cache, with what rights it is made, and what becomes of files that others cut short."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lance_io.limits import MIB
from lance_io.store.disk_cache.disk_cache import FOLDER, PAUSE_S, DiskCache
from lance_io.store.disk_cache.fixed_objects import NameSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHER_USER = 12_345
NAMES = NameSpace("store", "me")
INDEX, BYTES, JOURNAL = "ranges-1.sqlite", "ranges-1.bytes", "ranges-1.sqlite-journal"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def filled(path: Path, content: bytes = b"a" * 1000) -> Path:
    """A cache with one copy that no process has open; its folder."""
    cache = DiskCache(str(path), 8 * MIB)
    cache.keep(NAMES.of_range("a", 0, 1000), content)
    assert cache.flush()
    assert look(cache) == content
    cache._database.close()
    return path / FOLDER


def look(cache: DiskCache) -> bytes | None:
    (found,) = cache.find([NAMES.of_range("a", 0, 1000)]).result()
    return None if found is None else bytes(found)


def of_other(place: Path) -> None:
    os.chown(place, OTHER_USER, -1)


def of_group(place: Path) -> None:
    place.chmod(0o660 if place.is_file() else 0o770)


def of_everybody(place: Path) -> None:
    place.chmod(0o602 if place.is_file() else 0o702)


def a_link(place: Path) -> None:
    moved = place.parent.parent / f"moved-{place.name}"
    place.rename(moved)
    place.symlink_to(moved)


def undo(place: Path) -> None:
    if place.is_symlink():
        moved = place.readlink()
        place.unlink()
        moved.rename(place)
    os.chown(place, os.geteuid(), -1)
    place.chmod(0o600 if place.is_file() else 0o700)


@pytest.mark.parametrize(
    ("name", "is_open"),
    [("", False), (INDEX, False), (BYTES, False), (JOURNAL, False), ("", True), (INDEX, True), (BYTES, True)],
)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(of_other, f"belongs to user {OTHER_USER}", marks=needs_root),
        (of_group, "can be written by other users"),
        (of_everybody, "can be written by other users"),
        (a_link, "is no f"),
    ],
)
def test_what_others_may_have_written_is_not_believed(
    tmp_path: Path, name: str, change: Callable[[Path], None], reason: str, is_open: bool
) -> None:
    """Before the cache is opened, or while it is open, when nobody else can put a file there any more."""
    clock = Clock()
    place = filled(tmp_path / "cache") / name
    cache = DiskCache(str(tmp_path / "cache"), 8 * MIB, clock=clock)
    if is_open:
        assert look(cache) == b"a" * 1000
    change(place)
    with pytest.warns(UserWarning, match=reason) as told:
        assert look(cache) is None
    assert len(told) == 1
    assert str(place) in str(told[0].message)
    assert not cache.is_up
    cache.keep(NAMES.of_range("b", 0, 1000), bytes(1000))
    cache.flush()
    assert (cache.stats.pauses, cache.stats.dropped) == (1, 1)

    clock.now_s += PAUSE_S
    with warnings.catch_warnings(record=True) as again:
        assert look(cache) is None
    assert again == []
    assert cache.stats.pauses == 2
    if not is_open:
        undo(place)
        clock.now_s += PAUSE_S
        assert look(cache) == b"a" * 1000  # it was there to be believed
    cache._database.close()


def test_a_warning_that_is_an_error_ends_no_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path).chmod(0o777)
    cache = DiskCache(str(tmp_path), 8 * MIB)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert look(cache) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path / FOLDER) in caplog.text


def test_an_index_of_others_has_no_right_checksums(tmp_path: Path) -> None:
    """SQLite opens by path: what it finds there does not make bytes be given."""
    own, planted = filled(tmp_path / "own"), filled(tmp_path / "planted", b"p" * 1000)
    shutil.copyfile(planted / INDEX, own / INDEX)
    key = (own / BYTES).read_bytes()[:32]
    assert any(key)
    (own / BYTES).write_bytes(key + (planted / BYTES).read_bytes()[32:])
    cache = DiskCache(str(tmp_path / "own"), 8 * MIB)
    assert look(cache) is None
    cache.flush()
    assert cache.stats.damaged == 1
    cache._database.close()


def test_bytes_without_a_key_are_begun_anew(tmp_path: Path) -> None:
    for content in (b"", bytes(31), bytes(4096)):
        folder = filled(tmp_path)
        (folder / BYTES).write_bytes(content)
        cache = DiskCache(str(tmp_path), 8 * MIB)
        assert look(cache) is None
        assert cache.stats.damaged == 1
        assert sorted(os.listdir(folder))[:2] == ["ranges-2.bytes", "ranges-2.sqlite"]
        cache._database.close()
        shutil.rmtree(folder)


# -- as other users -------------------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all users reach, whose files of whatever user are removed."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def as_user(user: int | None, umask: int, work: Callable[[], None]) -> None:
    """Do something in a forked child, of another user unless None."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            os.umask(umask)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("user", [None, pytest.param(OTHER_USER, marks=needs_root)])
@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o277, 0o777])
def test_modes_do_not_depend_on_the_umask(shared: Path, user: int | None, umask: int) -> None:
    volume = shared / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    as_user(user, umask, lambda: [filled(volume / "a" / "b")] and None)
    as_user(user, 0o022, lambda: [look_or_fail(volume / "a" / "b")] and None)
    modes = {str(one.relative_to(volume)): stat.S_IMODE(one.stat().st_mode) for one in volume.rglob("*")}
    folder = f"a/b/{FOLDER}"
    assert modes == {"a": 0o700, "a/b": 0o700, folder: 0o700} | {
        f"{folder}/{name}": 0o600 for name in (INDEX, BYTES, JOURNAL)
    }


def look_or_fail(path: Path) -> None:
    cache = DiskCache(str(path), 8 * MIB)
    assert look(cache) == b"a" * 1000
    assert cache.stats.pauses == 0
    cache._database.close()


@needs_root
@pytest.mark.parametrize("user", [None, OTHER_USER])
def test_a_volume_that_a_group_may_write_to_holds_a_cache(shared: Path, user: int | None) -> None:
    """As Kubernetes makes them of `fsGroup`: of root, with the group's bits."""
    volume = shared / "volume"
    volume.mkdir()
    os.chown(volume, OTHER_USER + 1 if user is None else 0, OTHER_USER)
    volume.chmod(0o2775)
    as_user(user, 0o002, lambda: [filled(volume)] and None)
    as_user(user, 0o002, lambda: look_or_fail(volume))
    assert stat.S_IMODE((volume / FOLDER).stat().st_mode) & 0o777 == 0o700


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_user_does_not_believe_root(shared: Path, mode: int) -> None:
    filled(shared).chmod(mode)

    def work() -> None:
        cache = DiskCache(str(shared), 8 * MIB)
        with pytest.warns(UserWarning, match=f"{FOLDER} belongs to user 0, and this process runs as user {OTHER_USER}"):
            assert look(cache) is None
        assert not cache.is_up

    as_user(OTHER_USER, 0o022, work)


# -- cut short ------------------------------------------------------------------------------------------------------

CUT_SHORT = """
import os, sys
from lance_io.store.disk_cache.disk_cache import DiskCache, FOLDER
from lance_io.store.disk_cache.fixed_objects import NameSpace
names, seconds = NameSpace("store", "me"), [0.0]
folder = os.path.join(sys.argv[1], FOLDER)
cache = DiskCache(sys.argv[1], 8 << 20, clock=lambda: seconds[0])
content = {f"k{n}": bytes([n]) * 3000 for n in range(60)}

def cut(length):
    cut_short = set()
    for entry in list(os.scandir(folder)):
        size = entry.stat().st_size
        if length * 2 < size:
            os.truncate(entry.path, size // 2 if length == 1 else length)
            cut_short.add(entry.name.partition(".")[2])
    return cut_short

def look():
    found = cache.find([names.of_range(key, 0, 3000) for key in content]).result()
    assert all(copy is None or copy == data for copy, data in zip(found, content.values()))
    return sum(copy is not None for copy in found)

def use():
    "Whatever was there, what is kept now is found in the end."
    for _ in range(4):
        num_found = look()
        for key, data in content.items():
            cache.keep(names.of_range(key, 0, 3000), data)
        assert cache.flush()
        seconds[0] += 60
    assert look() == len(content), num_found

def inside(connection):
    "Uses one while a transaction of it is open, and has changed something."
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE clock SET now = now + 1")
    connection.execute("DELETE FROM copy WHERE id % 3 = 0")

use()
everything = set()
for length in (0, 1, 100, 4096):
    everything |= cut(length)
    use()
    for what in ("COMMIT", "ROLLBACK"):
        try:
            with cache._database._writer as connection:
                inside(connection)
                everything |= cut(length)
                connection.execute(what)
        except Exception as error:
            print(type(error).__name__)
        use()
        try:
            with cache._database._reader as connection:
                connection.execute("BEGIN")
                rows = connection.execute("SELECT * FROM copy ORDER BY used")
                rows.fetchone()
                everything |= cut(length)
                rows.fetchall()
                connection.execute("COMMIT")
        except Exception as error:
            print(type(error).__name__)
        use()
print(sorted(everything))
"""


def test_files_that_others_cut_short_end_no_process(tmp_path: Path) -> None:
    """Each of the files that a cache has while it is used, at rest and in transactions of a reader and a writer."""
    done = subprocess.run([sys.executable, "-c", CUT_SHORT, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.splitlines()[-1] == "['bytes', 'sqlite', 'sqlite-journal']"
