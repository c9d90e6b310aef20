"""The kernel that decodes files that look like known ones: which it takes, where it stops, what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lance_io import _kernels
from lance_io.file.open.open_file import open_ending
from lance_io.file.scan.templates.page_templates import template_of
from lance_io.format.columns import ORDINARY_START, PAGE_TYPES
from lance_io.format.version import V2_2

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 30
LIMITS = ORDINARY_START, 1 << 20, 64, 1 << 20, 1 << 20
PAGES = PAGE_TYPES[V2_2], 64
FLAT = b"\x0a\x00"
WRONG_ARRAYS: list[Any] = [
    (FLAT, 1, [0], (12, False, 0), 0, b"", None),  # values of no whole bytes
    (FLAT, 1, [0], (64, False, 0), 4, b"", None),  # of no kind
    (FLAT, 1, [0], (64, True, 0), 0, b"", None),  # a bitmap that is in no buffer
    (FLAT, 1, [0], (0, False, 0), 1, b"", None),  # strings without bytes
    (FLAT, 1, [0], (64, False, 0), 0, b"l", None),  # lists without ends
    (FLAT, 1, [0], (64, False, 0), 0, b"", (FLAT, 1, 0, False)),  # ends without lists
    (FLAT, 1, [0], (64, False, 0), 0, b"x", None),
    (b"", 1, [0], (64, False, 0), 0, b"", None),
    (b"\x0a\x05\x08", 1, [0], (64, False, 0), 0, b"", None),  # a message that ends too early
    (b"\x3a\x04\x12\x02\x3a\x00\x3a", 1, [0], (64, False, 0), 0, b"", None),  # two messages
    (b"\x3a\x06\x12\x04\x3a\x02\x12\x00", 1, [0], (64, False, 0), 0, b"", None),  # a dictionary of dictionaries
    (b"\x32\x04\x18\x01\x18\x02", 1, [0], (64, False, 0), 0, b"", None),  # a number twice
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Files by pylance, all alike."""
    folder: Path = tmp_path_factory.mktemp("files") / "t"
    values = pa.table({"n": range(5 * ROWS), "s": [f"row {one}" for one in range(5 * ROWS)]})
    dataset = lance.write_dataset(values, folder, max_rows_per_file=ROWS, data_storage_version="2.2")
    paths = [file.path for fragment in dataset.get_fragments() for file in fragment.data_files()]
    return [(folder / "data" / path).read_bytes() for path in paths]


def shape_of(data: bytes, columns: tuple[int, ...] = (0, 1)) -> Any:
    opened = open_ending(("", "file", len(data)), data, 0)
    assert opened is not None
    file, schema = opened
    pages = []
    for column in columns:
        info = file.info(column).pages[0]
        template = template_of(file.column(column).pages[0], [info])
        assert template is not None
        pages.append(((column,), [template.described]))
    return ((2, 2), schema, 2), PAGES, [], pages


def numbers(leaf: Any) -> list[int]:
    count, (values,), _ = leaf
    found: list[int] = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)]).to_pylist()
    return found


def test_all_rows_of_all_files(files: list[bytes]) -> None:
    kernel = _kernels.KnownFiles([shape_of(files[0])], *LIMITS)
    count, (first, second) = kernel.scan([(data, ROWS) for data in files])
    assert count == 5
    assert numbers(first) == list(range(5 * ROWS))
    num_items, (offsets, data), _ = second
    texts = pa.Array.from_buffers(pa.string(), num_items, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    assert texts.to_pylist() == [f"row {one}" for one in range(5 * ROWS)]


def test_it_stops_at_what_it_does_not_know(files: list[bytes]) -> None:
    kernel = _kernels.KnownFiles([shape_of(files[0], (0,))], *LIMITS)
    assert kernel.scan([]) == (0, [])
    for stranger in ((files[2], ROWS + 1), (files[2][:-1], ROWS), (b"", 0), (b"LANC", ROWS), (files[2][1:], ROWS)):
        count, leaves = kernel.scan([(files[0], ROWS), (files[1], ROWS), stranger, (files[3], ROWS)])
        assert count == 2
        assert numbers(leaves[0]) == list(range(2 * ROWS))
    assert kernel.scan([(b"", 0), (files[0], ROWS)]) == (0, [])


def test_another_schema_is_another_shape(files: list[bytes], tmp_path: Path) -> None:
    other = pa.table({"n": pa.array(range(ROWS)), "t": [str(one) for one in range(ROWS)]})
    dataset = lance.write_dataset(other, tmp_path / "t", data_storage_version="2.2")
    (path,) = [file.path for fragment in dataset.get_fragments() for file in fragment.data_files()]
    data = (tmp_path / "t" / "data" / path).read_bytes()
    both = [(files[0], ROWS), (data, ROWS)]
    assert _kernels.KnownFiles([shape_of(files[0], (0,))], *LIMITS).scan(both)[0] == 1
    count, (leaf,) = _kernels.KnownFiles([shape_of(files[0], (0,)), shape_of(data, (0,))], *LIMITS).scan(both)
    assert count == 2
    assert numbers(leaf) == [*range(ROWS), *range(ROWS)]


def test_shapes_that_do_not_fit_together(files: list[bytes]) -> None:
    schema, of_pages, headers, pages = shape_of(files[0])
    (_, (number,)), (_, (text,)) = pages
    message, hole, buffers, mini_block, _ = number
    wrong: list[Any] = [
        [((0,), [number, text])],  # values of eight bytes, and strings
        [((0,), [(message, hole, buffers + 1, mini_block, None)])],
        [((0,), [(message, (5, 1 << 40), buffers, mini_block, None)])],
        [((0,), [(b"\xff", hole, buffers, mini_block, None)])],
        [((0,), [(message, hole, buffers, None, None)])],
        [((0,), [(message, None, 0, None, (7, False))])],
        [((0,), [(message, hole, buffers, (mini_block[0][:-3], b"", *mini_block[2:]), None)])],
        *[[((0,), [one])] for one in WRONG_ARRAYS],
    ]
    for columns in wrong:
        with pytest.raises(ValueError):
            _kernels.KnownFiles([(schema, of_pages, headers, columns)], *LIMITS)
    with pytest.raises(ValueError, match="different columns"):
        _kernels.KnownFiles([shape_of(files[0]), shape_of(files[0], (0,))], *LIMITS)
