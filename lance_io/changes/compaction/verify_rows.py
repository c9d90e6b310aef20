"""Checks that new files hold the rows of old fragments: reads both and compares sums of their columns.

column   number of rows, nulls at every depth, sum of the hashes of its values (`levels/leaf_sums.py`), in any order
blobs    a top-level column of blobs: the sizes; nested blobs: only the number of rows
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from lance_io.errors import OperationError
from lance_io.levels.leaf_sums import sum_array
from lance_io.plans.streams import Each
from lance_io.proto import table_pb2
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.version.column_lists import project
from lance_io.table.manifest.fragment import encode_fragment
from lance_io.table.manifest.manifest import VERSION_MAX, from_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.plans.plan import Plan
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.fragment import Fragment

    Sums = dict[str, tuple[int, int, int]]  # by column: rows, nulls, hashes


def verify_rows(state: DatasetState, old: ScanOptions, new: Sequence[Fragment]) -> Plan[None]:
    """Read old and new rows; raises `OperationError` if they differ.

    old  scan of the old rows
    new  fragments that no version refers to yet
    """
    expected = yield from _sum_rows(state, old)
    written = _with_fragments(state, new)
    sums = yield from _sum_rows(written, replace(old, fragments=tuple(written.fragment_ids)))
    wrong = [name for name in expected if expected[name] != sums.get(name)]
    if wrong:
        raise OperationError(
            f"column {wrong[0]!r}: rows, nulls and hashes are {expected[wrong[0]]} in the old files, but "
            f"{sums.get(wrong[0])} in the new files. Nothing was committed",
            path=state.location.uri,
        )


def _sum_rows(state: DatasetState, options: ScanOptions) -> Plan[Sums]:
    projection = project(state.schema, None)
    sums: Sums = {field.name: (0, 0, 0) for field in state.schema.fields}

    def add(batch: pa.RecordBatch) -> None:
        for field in state.schema.fields:
            array = batch.column(field.name)
            rows, nulls, hashes = sums[field.name]
            if field.holds_blobs:
                more_nulls, more = array.null_count, sum_array(array.field("size").filter(array.is_valid()))[1]
            elif any(each.holds_blobs for each in field.walk()):
                more_nulls, more = array.null_count, 0
            else:
                more_nulls, more = sum_array(array)
            sums[field.name] = rows + len(array), nulls + more_nulls, (hashes + more) % (1 << 64)

    yield Each(projected_batches(state, options, projection), add)
    return sums


def _with_fragments(state: DatasetState, fragments: Sequence[Fragment]) -> DatasetState:
    """The open version with other fragments."""
    message = table_pb2.Manifest()
    message.CopyFrom(state.manifest.message)
    message.ClearField("fragments")
    message.ClearField("index_section")
    message.fragments.extend(encode_fragment(replace(fragment, id=index)) for index, fragment in enumerate(fragments))
    message.transaction_file = f"{uuid4()}.txn"  # caches distinguish versions by it
    return replace(state, manifest=from_message(message, VERSION_MAX))
