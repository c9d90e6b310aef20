"""Files that no writer makes today: what pylance reads of them we read with the same rows, the rest is refused by name.

Cases of the specification's list "reverse" (encodings 2.0, section 9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as PeerReader

from lance_io.errors import FormatError, UnsupportedError
from lance_io.file import LanceFileReader
from lance_io.proto import encodings_pb2 as pb
from tests.encodings.harness import Opened, assert_same
from tests.encodings.v2_0.handmade import (
    HEADER,
    Array,
    Column,
    Page,
    binary,
    bits,
    dictionary,
    flat,
    lists,
    no_nulls,
    some_nulls,
    u64,
)
from tests.encodings.v2_0.handmade_cases import INTS, MADE, TEXTS, X_YZ, Made, ints

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.name)
def test_what_pylance_reads_is_read(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "f.lance"
    made.write(path)
    expected = PeerReader(str(path)).read_all().to_table()["c"]
    assert expected.to_pylist() == made.rows
    opened = Opened(path)
    assert_same(opened.read()[0], expected)
    dice = np.random.default_rng(1)
    rows = len(made.rows)
    for _ in range(25):
        start, end = sorted(dice.integers(0, rows + 1, 2).tolist())
        assert_same(opened.scan(start, end, None)[0], expected.slice(start, end - start))
        chosen = np.unique(dice.integers(0, rows, 4))
        assert_same(opened.take(chosen)[0], expected.take(pa.array(chosen)))
    assert [len(column.pages) for column in LanceFileReader(path).metadata().columns] == [
        len(column.pages) for column in made.columns
    ]


def bad(name: str, dtype: pa.DataType, columns: list[Column], text: str, rows: int = 3) -> tuple[Made, str]:
    """A file that is refused with this text."""
    return Made(name, dtype, columns, [None] * rows), text


def _refused() -> Iterator[tuple[Made, str]]:
    """Files that pylance cannot read, or reads wrong."""
    short = Page(2, lists(no_nulls(flat(32, 0)), 3), [ints(2, 3)])
    item = Column([INTS])
    yield bad("32-bit list offsets", pa.list_(pa.int32()), [Column([short]), item], "32 bits; expected 64", rows=2)
    page = Page(3, binary(no_nulls(flat(32, 0)), flat(8, 1), 4), [ints(1, 2, 3), b"xyz"])
    yield bad("32-bit string ends", pa.string(), [Column([page])], "32 bits; expected 64")
    items = binary(no_nulls(flat(64, 1)), flat(8, 2), 4)
    wide = Page(3, dictionary(no_nulls(flat(16, 0)), items, 2), [ints(1, 0, 2, dtype="<i2"), u64(1, 3), b"xyz"])
    yield bad("16-bit codes", pa.string(), [Column([wide])], "codes of 16 bits")
    page = Page(3, dictionary(no_nulls(flat(8, 0)), items, 2), [bytes([1, 0, 2]), u64(1, 3), b"xyz"])
    yield bad("large strings", pa.large_string(), [Column([page])], "only those of strings")
    yield bad("no dictionary", pa.dictionary(pa.int8(), pa.string()), [Column([TEXTS])], "variable width")
    yield bad("column encoding", pa.int32(), [Column([INTS], encoding=None)], "column encoding is missing")
    zones = pb.ColumnEncoding(zone_index=pb.ZoneIndex(rows_per_zone=1))
    yield bad("zones", pa.int32(), [Column([INTS], encoding=zones)], "zone_index")
    page = Page(3, no_nulls(flat(32, 0, kind=pb.BUFFER_TYPE_FILE)))
    yield bad("buffer of the file", pa.int32(), [Column([page])], "buffers of the file")
    yield bad("constant", pa.int32(), [Column([Page(3, Array(constant={}))])], "'constant' is not part")
    page = Page(3, Array(inline_bitpacking={}))
    yield bad("inline_bitpacking", pa.int32(), [Column([page])], "'inline_bitpacking' is not part")
    page = Page(3, no_nulls(flat(32, 0, "snappy")), [b"xyz"])
    yield bad("snappy", pa.int32(), [Column([page])], "'snappy'")
    page = Page(3, no_nulls(flat(32, 0, "fsst")), [b"xyz"])
    yield bad("fsst of a buffer", pa.int32(), [Column([page])], "'fsst'")
    yield bad("missing buffer", pa.int32(), [Column([Page(3, no_nulls(flat(32, 1)), [b"xyz"])])], "buffer 1")
    yield bad("short buffer", pa.int32(), [Column([Page(3, flat(32, 0), [b"xyz"])])], "values take 12")
    wrong = Page(3, no_nulls(flat(64, 0)), [u64(1, 2, 3)])
    yield bad("other width", pa.int32(), [Column([wrong])], "64 bits")
    page = Page(3, X_YZ, [u64(1, 5, 9), b"xyz"])
    yield bad("ends behind the bytes", pa.string(), [Column([page])], "an end of 5")
    page = Page(3, X_YZ, [u64(2, 6, 1), b"xyz"])
    yield bad("ends that descend", pa.string(), [Column([page])], "an end of 1 behind one of 2")
    page = Page(3, dictionary(no_nulls(flat(8, 0)), items, 2), [bytes([1, 0, 3]), u64(1, 3), b"xyz"])
    yield bad("code without item", pa.string(), [Column([page])], "code 3")
    header = Column([Page(2, HEADER), Page(1, HEADER)])
    yield bad("two header pages", pa.struct([("x", pa.int32())]), [header, item], "2 pages; the header")
    bare = Column([Page(3, some_nulls(flat(1, 0), HEADER), [bits([1, 0, 1])])])
    yield bad("header with nulls", pa.struct([("x", pa.int32())]), [bare, item], "stored as 'nullable'")
    far = Page(2, lists(no_nulls(flat(64, 0)), 9), [u64(2, 9)])
    yield bad("items that are missing", pa.list_(pa.int32()), [Column([far]), item], "column 1", rows=2)


REFUSED = list(_refused())


@pytest.mark.parametrize(("made", "text"), REFUSED, ids=[one.name for one, _ in REFUSED])
def test_what_cannot_be_read_is_refused_by_name(made: Made, text: str, tmp_path: Path) -> None:
    path = tmp_path / "f.lance"
    made.write(path)
    for read in (
        lambda one: one.read_all().to_table(),
        lambda one: one.take_rows([0, len(made.rows) - 1]).to_table(),
    ):
        with pytest.raises((FormatError, UnsupportedError), match=text) as caught:
            read(LanceFileReader(path))
        assert "f.lance" in str(caught.value) and "column" in str(caught.value)
