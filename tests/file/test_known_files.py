"""Small files that look like others are decoded in one kernel call: the rows are those of the general way, and so is
whatever is said about damaged ones."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_io
from lance_io.encodings import open_page as page_opening
from lance_io.errors import LanceError
from lance_io.file.open import column_pages
from lance_io.file.scan import pool_jobs
from lance_io.file.scan.pool_jobs import PoolJob
from lance_io.file.scan.templates import small_files
from lance_io.file.scan.templates.file_templates import MISSES_MIN, FileTemplates
from lance_io.file.scan.templates.small_files import SmallFiles
from tests import products
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

FILES, ROWS = 48, 60
FRAGILE = 20  # of so many rows that they are not taken
DAMAGES = 240 if products.ALL else 60
WRITERS = [(module, version) for module in (lance, lance_io) for version in ("2.1", "2.2")]


def rows_of(number: int) -> pa.Table:
    """Pages of every kind that may be known, some of them in some of the files only."""
    dice = np.random.default_rng(number)
    first = number * ROWS
    some = [None if dice.random() < 0.2 else i for i in range(first, first + ROWS)]
    lists = [None if one is None else [one, None] * (one % 4) for one in some]
    columns = {
        "plain": (pa.int64(), range(first, first + ROWS)),
        "nullable": (pa.int32(), [None] * ROWS if number % 5 == 0 else some),
        "constant": (pa.float32(), [number / 2] * ROWS),
        "flag": (pa.bool_(), [True] * ROWS if number % 3 else [one is None for one in some]),
        "text": (pa.string(), [None if one is None else f"row {one}" for one in some]),
        "same": (pa.large_string(), [f"all of {number}"] * ROWS),
        "none": (pa.binary(), [None] * ROWS),
        "word": (pa.string(), [f"word {i % (2 + number % 3)}" for i in range(ROWS)]),
        "list": (pa.list_(pa.int16()), lists),
        "struct": (
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
            [None if one is None else {"x": one, "y": str(one)} for one in some],
        ),
        "vector": (pa.list_(pa.float64(), 3), [[i, i + 0.5, -i] for i in range(ROWS)]),
        "coded": (pa.string(), [f"http://example.org/{number}/{i % 5}/{i}" for i in range(ROWS)]),
        "time": (pa.timestamp("us", "UTC"), [1_000_000 * i for i in range(ROWS)]),
        "decimal": (pa.decimal128(20, 3), [i for i in range(ROWS)]),
    }
    fields = [
        pa.field(name, dtype, metadata={"lance-encoding:compression": "fsst"} if name == "coded" else None)
        for name, (dtype, _) in columns.items()
    ]
    arrays = [pa.array(values, dtype) for dtype, values in columns.values()]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@pytest.fixture(scope="module", params=WRITERS, ids=lambda one: f"{one[0].__name__} {one[1]}")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of one version, by either writer."""
    module, version = request.param
    made = tmp_path_factory.mktemp("known") / "t"
    for number in range(FILES):
        module.write_dataset(rows_of(number), str(made), mode="append", data_storage_version=version)
    return made


class Counted:
    """How many files were known, and how many were read in general."""

    def __init__(self) -> None:
        self.known = self.missed = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    read, missed = FileTemplates.read, FileTemplates.record_miss

    def noted_read(self: FileTemplates, files: Any) -> Any:
        answer = read(self, files)
        found.known += answer[0]
        return answer

    def noted_missed(self: FileTemplates) -> None:
        found.missed += 1
        missed(self)

    monkeypatch.setattr(FileTemplates, "read", noted_read)
    monkeypatch.setattr(FileTemplates, "record_miss", noted_missed)
    return found


def opened(folder: Path) -> Any:
    """The table, of which nothing is known yet."""
    return lance_io.dataset(str(folder), session=lance_io.Session())


def test_files_are_known_and_their_rows_those_of_pylance(folder: Path, counted: Counted) -> None:
    ours, theirs = opened(folder), lance.dataset(str(folder))
    expected = theirs.to_table()
    assert ours.to_table().equals(expected)
    assert (counted.known, counted.missed) == (FILES, 0)
    for column in expected.column_names:
        before = counted.known
        assert ours.to_table([column]).equals(expected.select([column])), column
        assert counted.known - before == FILES
    assert ours.to_table(["struct.y", "list"]).equals(theirs.to_table(["struct.y", "list"]))


@pytest.mark.parametrize(("letters", "are_known"), [(9, True), (20_000, False)])
def test_compressed_dictionaries_of_short_words(
    letters: int, are_known: bool, tmp_path: Path, counted: Counted
) -> None:
    """Items of a few hundred bytes become little, however often they occur; long ones are decoded in pieces."""
    words = ["" if number == 0 else f"{number}" * letters for number in range(6)]
    rows = pa.table({"word": [words[number % 6] for number in range(6000)], "id": range(6000)})
    lance.write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=200)
    assert opened(tmp_path / "t").to_table().equals(rows)
    assert counted.known == (30 if are_known else 0)


def test_batches_end_where_fragments_do(folder: Path) -> None:
    ours, theirs = opened(folder), lance.dataset(str(folder))
    for options in ({}, {"batch_size": 25}, {"batch_size": 100, "strict_batch_size": True}):
        found, expected = list(ours.to_batches(**options)), list(theirs.to_batches(**options))
        assert [one.num_rows for one in found] == [one.num_rows for one in expected]
        assert pa.Table.from_batches(found).equals(pa.Table.from_batches(expected))


FILTERS = ("plain % 100 = 7", "plain >= 0", "plain < 0", "text is null", "struct.x > 500", "nullable % 2 = 1 or flag")


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_over_files_that_are_known(folder: Path, condition: str, counted: Counted) -> None:
    ours, theirs = opened(folder), lance.dataset(str(folder))
    expected = theirs.to_table(filter=condition, with_row_id=True, with_row_address=True)
    assert ours.to_table(filter=condition, with_row_id=True, with_row_address=True).equals(expected)
    assert counted.known == FILES
    assert ours.count_rows(condition) == theirs.count_rows(condition) == expected.num_rows
    late = ours.scanner(filter=condition, late_materialization=True).to_table()
    assert late.equals(expected.drop_columns(["_rowid", "_rowaddr"]))
    for offset, limit in ((0, 1), (3, 70), (25, 1000)):
        window: dict[str, Any] = {"filter": condition, "offset": offset, "limit": limit}
        assert ours.to_table(**window).equals(theirs.to_table(**window))


def test_rows_that_were_deleted_stay_away(folder: Path, tmp_path: Path) -> None:
    uri = str(shutil.copytree(folder, tmp_path / "t"))
    lance.dataset(uri).delete(f"plain % 7 = 0 and plain < {FILES * ROWS // 2} or (plain >= 120 and plain < 180)")
    ours, theirs = opened(tmp_path / "t"), lance.dataset(uri)
    assert ours.to_table(with_row_id=True).equals(theirs.to_table(with_row_id=True))
    assert ours.to_table(filter="plain % 3 = 1").equals(theirs.to_table(filter="plain % 3 = 1"))
    assert ours.count_rows("flag") == theirs.count_rows("flag")
    everything: dict[str, Any] = {"with_row_id": True, "include_deleted_rows": True}
    assert ours.scanner(**everything).to_table().equals(theirs.scanner(**everything).to_table())


def test_each_file_is_read_once(folder: Path) -> None:
    dataset = opened(folder)
    dataset.io_stats_incremental()
    dataset.to_table(["plain", "text"])
    assert dataset.io_stats_incremental().read_iops == FILES


def test_few_files_are_given_to_few_jobs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be under way, for that is how work is shared; no more, for each costs as much as five files."""
    jobs: list[int] = []
    under_way: set[int] = set()
    read = SmallFiles._read

    def noted(scan: SmallFiles, job: Any) -> Any:
        jobs.append(job.end - job.first)
        under_way.add(scan.ahead.pieces)
        return read(scan, job)

    monkeypatch.setattr(SmallFiles, "_read", noted)
    opened(folder).to_table(columns=["plain"])
    (ahead,) = under_way
    assert sum(jobs) == FILES
    assert len(jobs) == max(ahead, FILES // 16)


def test_wide_files_of_few_rows_are_scanned(tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows would be taken, were they not of so many columns."""
    uri = str(tmp_path / "t")
    columns = {f"c{number}": [number, number + 1, 5, 7 * number] for number in range(300)}
    lance.write_dataset(pa.table(columns), uri, max_rows_per_file=2)
    ours, theirs = opened(tmp_path / "t"), lance.dataset(uri)
    assert ours.to_table().equals(theirs.to_table())
    assert counted.known == 2
    assert ours.to_table(["c1", "c299"]).equals(theirs.to_table(["c1", "c299"]))
    assert counted.known == 2
    monkeypatch.setattr(small_files, "LEAVES_MAX", 299)  # a call for more would last too long
    assert opened(tmp_path / "t").to_table().equals(theirs.to_table())
    assert counted.known == 2


def test_equal_columns_of_a_wide_file_open_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The template of the first one serves the others, and so does what bounds its decoded size."""
    values = {f"c{number}": [7 * number + row for row in range(200)] for number in range(300)}
    lance.write_dataset(pa.table(values), tmp_path / "t", max_rows_per_file=100)
    pages = []

    def noted(version: Any, page: Any, path: Any) -> Any:
        pages.append(path)
        return page_opening.open_page(version, page, path)

    monkeypatch.setattr(column_pages, "open_page", noted)
    assert opened(tmp_path / "t").to_table().to_pydict() == values
    assert 0 < len(pages) < 10  # one for each packed width


def test_files_of_all_kinds_keep_their_order(tmp_path: Path, counted: Counted) -> None:
    """Files that are learned, files that nothing is known of, and large ones between."""
    uri = str(tmp_path / "t")
    for number in range(60):
        version = "2.0" if number == 10 else "2.2" if number < 30 else "2.1"
        count = 70_000 if number == 20 else 1 if number % 9 == 0 else 50
        rows = pa.table({"n": np.arange(count) + 1000 * number, "s": [f"{number} {one % 7}" for one in range(count)]})
        lance.write_dataset(rows, uri, mode="append", data_storage_version=version)
    ours, theirs = opened(tmp_path / "t"), lance.dataset(uri)
    assert ours.to_table().equals(theirs.to_table())
    assert counted.known >= 50
    assert ours.to_table(["s"], filter="n % 1000 < 3").equals(theirs.to_table(["s"], filter="n % 1000 < 3"))


def test_columns_that_files_lack_are_null(tmp_path: Path, counted: Counted) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"n": range(600)}), uri, max_rows_per_file=20)
    lance_io.dataset(uri).add_columns(pa.field("later", pa.string()))
    lance_io.write_dataset(
        pa.table({"n": range(600), "later": [str(one) for one in range(600)]}), uri, mode="append", max_rows_per_file=20
    )
    assert opened(tmp_path / "t").to_table().equals(lance.dataset(uri).to_table())
    assert (counted.known, counted.missed) == (60, 0)


def test_what_is_never_known_is_not_asked_for_again(tmp_path: Path, counted: Counted) -> None:
    """Large values are no pages that others are like: files with them are read in general from the second scan on."""
    uri = str(tmp_path / "t")
    wide = pa.array([bytes([one % 256]) * 3000 for one in range(1200)], pa.binary())
    lance.write_dataset(pa.table({"n": range(1200), "b": wide}), uri, max_rows_per_file=15, data_storage_version="2.1")
    dataset = opened(tmp_path / "t")
    for _ in range(3):
        assert dataset.to_table().equals(lance.dataset(uri).to_table())
    assert counted.known == 0
    assert MISSES_MIN <= counted.missed <= 80  # of 240: only the first scan asked


FORKED = """
import gc, os, signal, sys
import lance_io
from lance_io.file.scan.templates.file_templates import FileTemplates
table = lance_io.dataset(sys.argv[1])
fragments = table.get_fragments()
assert table.scanner(fragments=fragments[:30]).to_table().num_rows == 1800
(known,) = [one for one in gc.get_objects() if isinstance(one, FileTemplates)]
known._lock.acquire()  # as a thread would have it that is learning what the others look like
if not (child := os.fork()):
    signal.alarm(60)
    assert table.to_table().num_rows == 3600
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_forked_child_learns_for_itself(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for first, version in ((0, "2.2"), (1800, "2.1")):
        rows = pa.table({"n": range(first, first + 1800), "s": [str(one) for one in range(1800)]})
        lance.write_dataset(rows, uri, mode="append", max_rows_per_file=60, data_storage_version=version)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, uri]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def outcome(dataset: Any, **options: Any) -> Any:
    """All rows, or what is said instead."""
    try:
        return dataset.scanner(**options).to_table()
    except LanceError as error:
        return type(error), str(error)


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def fragile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fragile") / "t"
    for number in range(FRAGILE):
        rows = rows_of(number).select(["plain", "nullable", "text", "list", "constant", "coded", "same"])
        lance.write_dataset(rows, str(made), mode="append", data_storage_version=request.param)
    return made


def test_damage_is_told_as_in_general(fragile: Path, tmp_path: Path, counted: Counted) -> None:
    """Whatever bytes of a file are others: what comes of it is the same, read together with its likes or by itself."""
    folder = shutil.copytree(fragile, tmp_path / "t")
    dice = random.Random(seed_of(5))
    victim = sorted((folder / "data").iterdir())[dice.randrange(FRAGILE)]
    sound = victim.read_bytes()
    places = [dice.randrange(len(sound)) for _ in range(DAMAGES)] + [
        dice.randrange(-60, 0) for _ in range(DAMAGES // 4)
    ]
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
    assert counted.known and counted.missed
    victim.write_bytes(sound[:-100])
    kind, text = outcome(opened(folder))
    assert kind is lance_io.errors.FormatError and victim.name in text


@pytest.fixture(params=[1, 2])
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pool_jobs, "cpu_count", lambda: request.param)
    return int(request.param)


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[Future[Any]]:
    """What the pool was told to do: who gives a scan up does not wait for what has begun."""
    found: list[Future[Any]] = []
    submit = PoolJob.submit

    def noted(self: PoolJob[Any]) -> None:
        submit(self)
        if self._future is not None:
            found.append(self._future)

    monkeypatch.setattr(PoolJob, "submit", noted)
    return found


def test_nothing_stays_held(folder: Path, processors: int, handed_over: list[Future[Any]]) -> None:
    """Bytes are given back at the end of a scan, and when nobody goes on with it."""
    dataset = opened(folder)
    pool = dataset._state.context.pool
    before = pool.avail_bytes

    def some(count: int) -> Iterator[int]:
        for batch in dataset.to_batches():
            yield batch.num_rows
            if (count := count - 1) == 0:
                return

    assert sum(some(-1)) == FILES * ROWS
    assert pool.avail_bytes == before
    for count in (1, 5, FILES - 1):
        assert sum(some(count)) == count * ROWS
        wait(handed_over)
        assert pool.avail_bytes == before


@pytest.mark.parametrize("options", [{}, {"fragment_readahead": 8}])
@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_a_damaged_file_ends_a_scan_that_holds_nothing_then(
    fragile: Path,
    tmp_path: Path,
    processors: int,
    handed_over: list[Future[Any]],
    number: int,
    options: dict[str, Any],
) -> None:
    """Also where it is found before there is a first batch, with others being decoded."""
    folder = shutil.copytree(fragile, tmp_path / "t")
    paths = [file.path for fragment in lance.dataset(str(folder)).get_fragments() for file in fragment.data_files()]
    victim = folder / "data" / paths[number]
    victim.write_bytes(victim.read_bytes()[:-1] + b"X")
    dataset = opened(folder)
    pool = dataset._state.context.pool
    before = pool.avail_bytes
    with pytest.raises(LanceError, match=victim.name):
        dataset.scanner(**options).to_table()
    wait(handed_over)
    assert pool.avail_bytes == before
