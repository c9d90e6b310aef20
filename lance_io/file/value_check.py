"""Checks that values are in the range of their types. The format has no checksum, so a flipped bit may produce text
that is not UTF-8, a decimal with too many digits, or a time after the end of the day.

Decoders check lengths and counts. They check values only if `ReadContext.checks_values` is set, because that costs
another pass over the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_io.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lance_io.file.open.file_source import FragmentSource
    from lance_io.file.open.leaf_projection import Projection


def check_values(
    projection: Projection, arrays: Sequence[pa.Array | pa.ChunkedArray], parts: Iterable[tuple[FragmentSource, int]]
) -> None:
    """Raise FormatError, naming column and data file, if an array has a value outside the range of its type.

    arrays  one per field of the projection
    parts   fragments of the rows, in order, each with its number of rows
    """
    for number, array in enumerate(arrays):
        if (error := _fault(array)) is not None:
            raise _locate(projection, number, array, parts, error)


def _fault(array: pa.Array | pa.ChunkedArray) -> pa.ArrowInvalid | None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        return error
    return None


def _locate(
    projection: Projection,
    number: int,
    array: pa.Array | pa.ChunkedArray,
    parts: Iterable[tuple[FragmentSource, int]],
    error: pa.ArrowInvalid,
) -> FormatError:
    leaf_ids = {path.leaf.id for path in projection.paths[number]}
    start, key = 0, None
    for source, num_rows in parts:
        # A copy: validating a slice of lists would check the items of all rows.
        rows = array.take(pa.array(np.arange(start, start + num_rows)))
        if _fault(rows) is not None:
            keys = [file.ref.key for file in projection.locate(source) if leaf_ids.intersection(file.leaf_ids)]
            key = keys[0] if keys else None
            break
        start += num_rows
    return FormatError(
        f"{error}. The file is damaged, or its writer did not check its values.",
        where=f'column "{projection.fields[number].name}"',
        path=key,
    )
