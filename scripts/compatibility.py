"""Read and write tables of each version, release and feature, and write `docs/compatibility.md` from the results.

    python scripts/compatibility.py                          write the page
    python scripts/compatibility.py --check                  exit 1 if the page differs from the results
    python scripts/compatibility.py --peer-datasets FOLDER   folder of tables of old releases (in `historical/`); by
                                                             default beside the checkout; without them that part of
                                                             the page does not change

Nothing on the page is written by hand: each entry is the outcome of a call, compared with pylance's. A test makes the
page again and compares.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lance_io
from lance_io.errors import LanceError
from lance_io.format.version import version_of_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "compatibility.md"
RELEASES: Final = ROOT / "tests" / "interop" / "releases"
PEER_DATASETS: Final = ROOT.parent / "shared" / "data" / "peer-datasets"
VERSIONS: Final = ("0.1", "2.0", "2.1", "2.2")
NUM_ROWS: Final = 20_000
SMALL_BYTES: Final = 16 * 1024  # both libraries read smaller files in one piece
REFUSED: Final = (LanceError, pa.ArrowException, NotImplementedError)


# -- file version x type -----------------------------------------------------------------------------------------------

_RANDOM: Final = np.random.default_rng(20)
_NUMBERS: Final = np.sort(_RANDOM.integers(0, 1 << 40, NUM_ROWS))


def _numbers(type_: pa.DataType) -> pa.Array:
    """Ascending values of a type to which whole numbers can be cast."""
    width = type_.bit_width if not pa.types.is_decimal(type_) else 64
    highest = 1 << min(width - 1, 40)
    return pa.array(np.sort(_NUMBERS % highest if width < 40 else _NUMBERS)).cast(type_)


def _reals(type_: pa.DataType) -> pa.Array:
    return pa.array(np.sort(_RANDOM.random(NUM_ROWS))).cast(type_)


def _texts(type_: pa.DataType) -> pa.Array:
    return pa.array([f"{number:016x}" for number in _NUMBERS.tolist()]).cast(type_)


def _with_nulls(array: pa.Array) -> pa.Array:
    rows = np.arange(len(array))
    return array.take(
        pa.array(rows, mask=rows % 7 == 3)
    )  # with nothing beneath the nulls, which files of 0.1 would keep


def _lists(items: pa.Array, large: bool = False) -> pa.Array:
    """A list of two items for each row."""
    items = pa.concat_arrays([items, items])
    offsets = pa.array(np.arange(0, 2 * NUM_ROWS + 1, 2), pa.int64() if large else pa.int32())
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, items)


def _structs() -> pa.Array:
    return pa.StructArray.from_arrays([_numbers(pa.int64()), _texts(pa.string())], ["x", "y"])


def _maps() -> pa.Array:
    offsets = pa.array(np.arange(NUM_ROWS + 1), pa.int32())
    return pa.MapArray.from_arrays(offsets, _texts(pa.string()), _numbers(pa.int32()))


def _vectors(items: pa.Array, size: int = 16) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.concat_arrays([items] * size), size)


def _times(type_: pa.DataType) -> pa.Array:
    return pa.array(np.sort(_NUMBERS % 86_400)).cast(pa.int32() if type_.bit_width == 32 else pa.int64()).cast(type_)


def _dates64() -> pa.Array:
    return pa.array(np.sort(_NUMBERS % 30_000) * 86_400_000).cast(pa.date64())


@dataclass(frozen=True)
class Kind:
    """A type of columns.

    make      the values
    metadata  of the field
    """

    make: Callable[[], pa.Array]
    metadata: dict[str, str] | None = None

    def table(self) -> pa.Table:
        array = self.make()
        return pa.table([array], schema=pa.schema([pa.field("v", array.type, metadata=self.metadata)]))


def _blobs() -> pa.Array:
    return pa.array([b"%016x" % number * 3 for number in _NUMBERS.tolist()], pa.large_binary())


def _new_blobs() -> pa.Array:
    return lance.blob_array([b"%016x" % number * 3 for number in _NUMBERS[:2000].tolist()])


KINDS: Final[dict[str, Kind]] = {
    "bool": Kind(lambda: pa.array(_NUMBERS % 2 == 1)),
    "int8, int16": Kind(lambda: _numbers(pa.int16())),
    "int32, int64": Kind(lambda: _numbers(pa.int64())),
    "uint8 to uint64": Kind(lambda: _numbers(pa.uint32())),
    "integers with nulls": Kind(lambda: _with_nulls(_numbers(pa.int64()))),
    "float16": Kind(lambda: _reals(pa.float16())),
    "float32, float64": Kind(lambda: _reals(pa.float64())),
    "decimal128": Kind(lambda: _numbers(pa.decimal128(30, 2))),
    "decimal256": Kind(lambda: _numbers(pa.decimal256(50, 2))),
    "date32": Kind(lambda: pa.array(np.sort(_NUMBERS % 30_000)).cast(pa.int32()).cast(pa.date32())),
    "date64": Kind(_dates64),
    "time32, time64": Kind(lambda: _times(pa.time64("us"))),
    "timestamp": Kind(lambda: _numbers(pa.timestamp("us"))),
    "timestamp with zone": Kind(lambda: _numbers(pa.timestamp("us", "Europe/Berlin"))),
    "duration": Kind(lambda: _numbers(pa.duration("ns"))),
    "null": Kind(lambda: pa.nulls(NUM_ROWS)),
    "string": Kind(lambda: _texts(pa.string())),
    "string with nulls": Kind(lambda: _with_nulls(_texts(pa.string()))),
    "large string": Kind(lambda: _texts(pa.large_string())),
    "binary": Kind(lambda: _texts(pa.binary())),
    "large binary": Kind(lambda: _texts(pa.large_binary())),
    "fixed-size binary": Kind(lambda: _texts(pa.binary()).cast(pa.binary(16))),
    "dictionary": Kind(lambda: pa.array([f"word {n % 500}" for n in _NUMBERS.tolist()]).dictionary_encode()),
    "list": Kind(lambda: _lists(_numbers(pa.int64()))),
    "large list": Kind(lambda: _lists(_numbers(pa.int64()), large=True)),
    "list of strings": Kind(lambda: _lists(_texts(pa.string()))),
    "list of lists": Kind(lambda: _lists(_lists(_numbers(pa.int32())))),
    "list of structs": Kind(lambda: _lists(_structs())),
    "struct": Kind(_structs),
    "struct with nulls": Kind(lambda: _with_nulls(_structs())),
    "packed struct": Kind(
        lambda: pa.StructArray.from_arrays([_numbers(pa.int64()), _reals(pa.float32())], ["x", "y"]),
        {"lance-encoding:packed": "true"},
    ),
    "map": Kind(_maps),
    "vector (fixed-size list)": Kind(lambda: _vectors(_reals(pa.float32()))),
    "vector of booleans": Kind(lambda: _vectors(pa.array(_NUMBERS % 2 == 1))),
    "fixed-size list of structs": Kind(lambda: _vectors(_structs(), 2)),
    "json": Kind(lambda: pa.array([f'{{"n":{n}}}' for n in _NUMBERS.tolist()], pa.json_())),
    "uuid": Kind(lambda: pa.ExtensionArray.from_storage(pa.uuid(), _texts(pa.binary()).cast(pa.binary(16)))),
    "blob, first kind": Kind(_blobs, {"lance-encoding:blob": "true"}),
    "blob, second kind": Kind(_new_blobs, dict(lance.blob_field("v").metadata or {})),
}


@dataclass(frozen=True)
class Outcome:
    """The results for a type in files of one version; `is_there` is False if pylance does not write it."""

    is_there: bool = True
    reads: bool = False
    reads_parts: bool = False
    writes: bool = False
    uses_statistics: bool = False

    def __str__(self) -> str:
        if not self.is_there:
            return "-"
        letters = "RPWS"
        results = (self.reads, self.reads_parts, self.writes, self.uses_statistics)
        return "".join(letter for letter, has in zip(letters, results, strict=True) if has) or "no"


def content(library: Any, uri: Path) -> pa.Table:
    """All rows, with blobs as bytes."""
    table: pa.Table = library.dataset(str(uri)).to_table(blob_handling="all_binary")
    return table


def try_type(kind: Kind, version: str, folder: Path) -> Outcome:
    """Write a column with pylance and read it here, and the other way."""
    table, theirs, ours = kind.table(), folder / "theirs", folder / "ours"
    options: dict[str, Any] = {"data_storage_version": version, "max_rows_per_group": 1024}
    try:
        lance.write_dataset(table, str(theirs), **options)
        expected = content(lance, theirs)
    except BaseException as error:
        if not isinstance(error, (OSError, ValueError)) and type(error).__name__ != "PanicException":
            raise
        return Outcome(is_there=False)
    reads = tried(lambda: content(lance_io, theirs).equals(expected))
    return Outcome(
        reads=reads,
        reads_parts=reads and tried(lambda: reads_part(theirs)),
        writes=tried(partial(written, table, ours, options, expected)),
        uses_statistics=reads and tried(lambda: skips_batches(theirs, expected)),
    )


def tried(call: Callable[[], bool]) -> bool:
    """The result of a call; False if it raises an error of ours."""
    try:
        return call()
    except REFUSED:
        return False


def written(table: pa.Table, uri: Path, options: dict[str, Any], expected: pa.Table) -> bool:
    """Whether pylance reads what we write as it reads its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "files of version 0.1 hold no nulls", UserWarning)
        lance_io.write_dataset(table, str(uri), durability="none", **options)
    if lance_io.dataset(str(uri)).data_storage_version != version_of_name(options["data_storage_version"]).name:
        return False
    return bool(content(lance, uri).equals(expected))


def reads_part(uri: Path) -> bool:
    """Whether reading a row takes less than a quarter of its file, after the file's metadata."""
    dataset = lance_io.dataset(str(uri))
    (fragment,) = dataset.get_fragments()
    file_bytes = sum((uri / "data" / file.path).stat().st_size for file in fragment.data_files())
    dataset.take([0])
    dataset.io_stats_incremental()
    dataset.take([dataset.count_rows() // 2])
    read_bytes: int = dataset.io_stats_incremental().read_bytes
    return file_bytes < SMALL_BYTES or read_bytes < file_bytes / 4


def skips_batches(uri: Path, expected: pa.Table) -> bool:
    """Whether a filter on the last value skips batches and finds the value."""
    value = expected["v"][-1]
    predicate = pc.field("v") == value
    seen: list[Any] = []
    result = lance_io.dataset(str(uri)).scanner(filter=predicate, scan_stats_callback=seen.append).to_table()
    counts = seen[-1].all_counts
    return bool(result.num_rows >= 1 and counts.get("batches_skipped", 0) > 0)


# -- releases ----------------------------------------------------------------------------------------------------------


def verdicts(uri: Path, expected: pa.Table | None) -> list[str]:
    """Whether pylance reads a table, and whether we open, read, take, append and delete. This changes the table."""

    def read() -> bool:
        table = plain(lance_io.dataset(str(uri)).to_table())
        return expected is None or bool(table.equals(expected))

    def take() -> bool:
        dataset = lance_io.dataset(str(uri))
        rows = [dataset.count_rows() - 1, 0] if dataset.count_rows() else []
        wanted = plain(dataset.to_table().take(pa.array(rows, pa.int64())))
        return bool(plain(dataset.take(rows)).equals(wanted))

    def append() -> bool:
        rows = lance_io.dataset(str(uri)).to_table().slice(0, 2)
        before = lance.dataset(str(uri)).count_rows()
        lance_io.write_dataset(rows, str(uri), mode="append", durability="none")
        return bool(lance.dataset(str(uri)).count_rows() == before + rows.num_rows)

    def delete() -> bool:
        lance_io.dataset(str(uri)).delete("_rowid = 0")
        return bool(lance.dataset(str(uri)).count_rows() == lance_io.dataset(str(uri)).count_rows())

    steps = (lambda: lance_io.dataset(str(uri)).count_rows() >= 0, read, take, append, delete)
    return [pylance_reads(uri), *(named(step) for step in steps)]


def pylance_reads(uri: Path) -> str:
    try:
        lance.dataset(str(uri)).to_table()
    except (OSError, ValueError):
        return "no"
    return "yes"


def named(step: Callable[[], bool]) -> str:
    """yes, or the class of the error; `differs` if the outcome is not pylance's."""
    try:
        return "yes" if step() else "differs"
    except REFUSED as error:
        return type(error).__name__


def plain(table: pa.Table) -> pa.Table:
    """The table with values for dictionaries, and in one piece."""
    columns = [
        pa.chunked_array([column.combine_chunks().cast(column.type.value_type)])
        if pa.types.is_dictionary(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names).combine_chunks()


def release_rows(scratch: Path) -> Iterable[Sequence[str]]:
    """The tables that old wheels wrote, see `release_tables.py`."""
    for packed in sorted(RELEASES.glob("*.zip"), key=lambda path: [int(part) for part in path.stem.split(".")]):
        folder = scratch / packed.stem
        with zipfile.ZipFile(packed) as tables:
            tables.extractall(folder)
        for version in ("legacy", *VERSIONS):
            if (folder / f"{version}.arrow").exists():
                expected = read_ipc(folder / f"{version}.arrow")
                shown = version_of_name(version).name
                yield packed.stem, shown, *verdicts(folder / version, plain(expected.replace_schema_metadata()))


def historical_rows(scratch: Path, datasets: Path) -> Iterable[Sequence[str]]:
    """Tables that old releases left in the test data of their project."""
    for case in sorted((datasets / "historical").iterdir(), key=release_of):
        if not (case / "data.lance").is_dir():
            continue
        uri = scratch / case.name
        shutil.copytree(case / "data.lance", uri)
        recorded = json.loads((case / "expected.json").read_text()) if (case / "expected.json").exists() else {}
        content_of = case / f"v{recorded.get('latest_version')}.arrow"
        expected = None
        if content_of.exists():
            whole = read_ipc(content_of)
            expected = plain(whole.select([name for name in whole.column_names if not name.startswith("_row")]))
        release, _, name = case.name.partition("--")
        yield release, name.replace("_", " "), *verdicts(uri, expected)


def release_of(case: Path) -> list[Any]:
    release, _, name = case.name.partition("--")
    return [*(int(part) for part in release.split(".")), name]


def read_ipc(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


# -- feature flags -----------------------------------------------------------------------------------------------------

FLAGS: Final = {
    1: "deletion files",
    2: "stable row ids (on a table without any)",
    4: "file version 2.x (deprecated)",
    8: "table config",
    16: "base paths",
    32: "no transaction files",
    64: "data overlay files",
    128: "covered index metadata",
    256: "mixed file versions",
    512: "reserved",
    1024: "tagged fragment reuse index",
    2048: "spilled row lineage",
    4096: "fragment tree",
    8192: "reserved",
    16384: "managed blobs",
    32768: "field ids that are not given out again (without a mark)",
    65536: "zone seeds",
    131072: "object metadata, clustering",
    262144: "not known",
}


def flag_rows(scratch: Path) -> Iterable[Sequence[str]]:
    """Every bit, in either word and in both."""
    from tests.interop.test_feature_flags import WORDS, build, verdict

    for bit, name in FLAGS.items():
        words = [in_words(verdict(lance_io, build(scratch / f"{bit} {word}", bit, word))[0]) for word in WORDS]
        yield str(bit), name, *words
    ours = verdict(lance_io, build(scratch / "marked", 32768, "writer", 7))
    yield "32768", "the same with a mark", "", in_words(ours[0]), ""


def in_words(works: list[str]) -> str:
    if not works:
        return "refused"
    return "read and written" if len(works) == 4 else "read" if works == ["open", "scan"] else ", ".join(works)


# -- file version x change of members ----------------------------------------------------------------------------------

_INNER: Final = pa.struct([("p", pa.int32()), ("q", pa.string())])
_PACKED: Final = pa.field("k", pa.struct([("x", pa.int32()), ("y", pa.int64())]), metadata={"packed": "true"})
_NESTED: Final = pa.schema(
    [("a", pa.int64()), ("st", pa.struct([("x", pa.int32()), ("in", _INNER)])), ("l", pa.list_(_INNER)), _PACKED]
)
_MEMBER: Final = pa.struct([("m", pa.int64())])


def _add_to_items(table: Any) -> None:
    lengths = [len(items) for items in table.to_table(columns=["l"])["l"].to_pylist()]
    table.add_columns(pa.table({"l": pa.array([[{"m": 1}] * length for length in lengths], pa.list_(_MEMBER))}))


MEMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    "a new member of a struct, with values": lambda table: table.add_columns({"st": "named_struct('m', a)"}),
    "of a struct in a struct": lambda table: table.add_columns({"st": "named_struct('in', named_struct('m', a))"}),
    "of the structs in a list": _add_to_items,
    "without values": lambda table: table.add_columns(pa.field("st", _MEMBER)),
    "a cast of a member": lambda table: table.alter_columns({"path": "st.x", "data_type": pa.int64()}),
    "of a member of items": lambda table: table.alter_columns({"path": "l.item.p", "data_type": pa.int64()}),
    "of a member of a packed struct": lambda table: table.alter_columns({"path": "k.x", "data_type": pa.int64()}),
    "a member dropped": lambda table: table.drop_columns(["st.x"]),
    "of items": lambda table: table.drop_columns(["l.item.p"]),
    "of a packed struct": lambda table: table.drop_columns(["k.x"]),
    "some members merged": lambda table: (
        table.merge_insert("a")
        .when_matched_update_all()
        .execute(pa.table({"a": [2], "st": pa.array([{"x": 20}], pa.struct([("x", pa.int32())]))}))
    ),
}


def member_rows(scratch: Path) -> Iterable[Sequence[str]]:
    """Every change of members in a table of every version, by us and by pylance."""
    for number, (name, change) in enumerate(MEMBERS.items()):
        cells = []
        for version in VERSIONS:
            ours, theirs = (
                changed_members(library, change, scratch / f"{number} {version} {library.__name__}", version)
                for library in (lance_io, lance)
            )
            cells.append(ours if ours == theirs else f"{ours} ({theirs})")
        yield name, *cells


def changed_members(library: Any, change: Callable[[Any], Any], uri: Path, version: str) -> str:
    """Change a table of two files, each with a deleted row, and compare its rows, also after a commit of pylance's."""
    inner = [{"p": i, "q": "q"} for i in range(8)]
    rows = [
        {"a": i, "st": {"x": i, "in": inner[i]}, "l": inner[: i % 3], "k": {"x": i, "y": -i}} for i in range(len(inner))
    ]
    table = lance.write_dataset(
        pa.Table.from_pylist(rows, _NESTED), uri, max_rows_per_file=4, data_storage_version=version
    )
    table.delete("a in (0, 5)")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            change(library.dataset(str(uri)))
        except (*REFUSED, OSError, ValueError):
            return "refused"
    here = members_read(lance_io, uri)
    there = members_read(lance, uri)
    lance.dataset(uri).delete("a = 7")
    lasts = here == there and members_read(lance_io, uri) == members_read(lance, uri)
    if here is None:
        return "unreadable"
    return "both" if lasts else f"here{', warned' if caught else ''}"


def members_read(library: Any, uri: Path) -> list[Any] | None:
    """The rows in order; None if they are unreadable."""
    try:
        rows: list[Any] = library.dataset(str(uri)).to_table().sort_by("a").to_pylist()
    except (*REFUSED, OSError, ValueError):
        return None
    return rows


# -- the page ----------------------------------------------------------------------------------------------------------

INTRODUCTION: Final = """# Compatibility

The file versions, releases of pylance and feature flags that we read and write. `scripts/compatibility.py` makes the
tables on this page from calls, and a test repeats the calls; the results of pylance 14.0.2 count as right.
"""

TYPES_TEXT: Final = """## Types by file version

R: we read pylance's files as pylance reads them. P: we read a row without the rest, with less than a quarter of the
bytes of its file. W: pylance reads our files as its own. S: filters skip batches by the statistics in the file, which
only files of 0.1 have. "-": pylance 14 does not write this type in files of this version, or does not read it back;
"no": it does, and we do neither.
"""

MEMBERS_TEXT: Final = """## Members of structs by file version

The results of changes of members in a table with deleted rows. both: both libraries read the same rows, also after a
commit of pylance's; here: lance_io does, and pylance fails or reads other values; refused: nothing changes. In brackets
the result of the same call of pylance, where it is another one. In files of 2.0, below lists and beside packed structs
we write the whole column again, see [Columns](changing.md#columns).
"""

RELEASES_TEXT: Final = """## Tables of other releases

Wheels of these releases wrote the tables (`scripts/release_tables.py`): two files, an append and a deletion, of
ordinary types. The comparison is with the rows that the release itself read. 0.30 wrote files of 2.1, and 1.0 files of
2.2, before these versions were final; pylance 14 refuses them, too.
"""

HISTORICAL_TEXT: Final = """## Tables that old releases left

The tables come from the test data of the Lance project. The comparison is with the rows that pylance 14 reads. Of the
table of 0.5.9 only the manifests exist.
"""

FLAGS_TEXT: Final = """## Feature flags

The effect of each additional bit in the flag words of an ordinary table. `tests/interop/test_feature_flags.py` compares
the effects with pylance's, which are the same. [Findings](format.md) explain the duties of writers under each flag.
"""


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def types_section(scratch: Path) -> str:
    rows = []
    for number, (name, kind) in enumerate(KINDS.items()):
        cells = [str(try_type(kind, version, scratch / f"{number} {version}")) for version in VERSIONS]
        rows.append((name, *cells))
    return TYPES_TEXT + "\n" + grid(("type", *VERSIONS), rows)


_STEPS: Final = ("read by pylance 14", "opened", "read", "taken from", "appended to", "deleted from")


def releases_section(scratch: Path) -> str:
    return RELEASES_TEXT + "\n" + grid(("pylance", "file version", *_STEPS), release_rows(scratch))


def historical_section(scratch: Path, datasets: Path) -> str:
    return HISTORICAL_TEXT + "\n" + grid(("pylance", "table", *_STEPS), historical_rows(scratch, datasets))


def flags_section(scratch: Path) -> str:
    header = ("bit", "name", "in the reader word", "in the writer word", "in both")
    return FLAGS_TEXT + "\n" + grid(header, flag_rows(scratch))


def kept_section(page: str, text: str) -> str:
    """A section of the present page."""
    start = page.index(text.splitlines()[0])
    end = page.find("\n## ", start + 1)
    return page[start:] if end < 0 else page[start : end + 1]


def sections(scratch: Path, datasets: Path) -> Iterable[str]:
    """The page, part by part."""
    yield INTRODUCTION
    yield types_section(scratch / "types")
    yield MEMBERS_TEXT + "\n" + grid(("change", *VERSIONS), member_rows(scratch / "members"))
    yield releases_section(scratch / "releases")
    if (datasets / "historical").is_dir():
        yield historical_section(scratch / "historical", datasets)
    else:
        yield kept_section(PAGE.read_text(), HISTORICAL_TEXT)
    yield flags_section(scratch / "flags")


def made_page(scratch: Path, datasets: Path) -> str:
    """The page, from calls that run now."""
    return "\n".join(part.rstrip("\n") + "\n" for part in sections(scratch, datasets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--peer-datasets", type=Path, default=PEER_DATASETS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        page = made_page(Path(scratch), arguments.peer_datasets)
    if not arguments.check:
        PAGE.write_text(page)
    elif page != PAGE.read_text():
        sys.exit(f"{PAGE} differs from the results: run scripts/compatibility.py, and look at the changes")


if __name__ == "__main__":
    main()
