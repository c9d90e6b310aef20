"""Pages that we encode, read by our reader and by pylance; sizes against pylance's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lance_io.encodings.options import column_options
from lance_io.encodings.write_pages import encode_pages
from lance_io.format.schema_arrow import schema_from_arrow
from lance_io.format.version import V2_1, V2_2
from lance_io.levels.chunks import leaf_chunks
from lance_io.levels.ingest import ingester
from lance_io.levels.path import leaf_paths
from lance_io.levels.shred import shred
from tests.encodings.cases import Case, cases_by_version
from tests.encodings.container import write_file
from tests.encodings.harness import Opened, assert_same, peer_table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from lance_io.encodings.written import EncodedPage
    from lance_io.format.version import FileVersion

VERSIONS = {"2.1": V2_1, "2.2": V2_2}
CUTS = (1, 7)
CASES = [
    pytest.param(case, version, cuts, id=f"{case.name}@{version}-{cuts}")
    for turn, cuts in enumerate(CUTS)  # in each version one of them
    for case, version in cases_by_version(turn)
]


def encode(table: pa.Table, version: FileVersion, cuts: int = 1) -> list[list[EncodedPage]]:
    """The pages of a one-column table, `cuts` per leaf."""
    top = schema_from_arrow(table.schema).fields[0]
    array = ingester(top, table.schema.field(0).type, top)(table.column(0).combine_chunks())
    paths = leaf_paths(top)
    chunks = leaf_chunks(top, array)
    step = max(1, -(-len(table) // cuts))
    return [
        [
            encoded
            for start in range(0, max(1, len(table)), step)
            for encoded in encode_pages(
                path, shred([chunk.slice(start, min(step, len(table) - start))]), options, version
            )
        ]
        for path, chunk in zip(paths, chunks, strict=True)
        for options in [column_options(path.top, path.leaf)]
    ]


def save(path: Path, table: pa.Table, version: str, cuts: int = 1) -> None:
    write_file(path, table.schema, encode(table, VERSIONS[version], cuts), len(table), VERSIONS[version])


@pytest.mark.parametrize(("case", "version", "cuts"), CASES)
def test_both_readers_read_what_we_write(case: Case, version: str, cuts: int, tmp_path) -> None:
    table = case.table()
    if len(table) == 0:
        pytest.skip("a column without rows has no page")
    ours = tmp_path / "ours.lance"
    save(ours, table, version, cuts)
    assert_same(Opened(ours).read()[0], table["c"])
    assert_same(peer_table(ours)["c"], table["c"])
