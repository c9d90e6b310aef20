"""Are the values in the range of their types? The format has no checksum, so a flipped bit may make text that is no
UTF-8, a decimal with too many digits, a time behind the end of the day.

Decoders check lengths and counts; values only where `ReadContext.checks_values` asks for it, as that costs another pass
over the data.
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
    """Raise FormatError, which names column and data file, where an array has a value that its type has not.

    arrays  one per field of the projection
    parts   fragments that their rows are of, one after the other, with how many of each
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
        rows = array.take(pa.array(np.arange(start, start + num_rows)))  # of a slice, all items of lists are checked
        if _fault(rows) is not None:
            keys = [here.ref.key for here in projection.locate(source) if leaf_ids.intersection(here.leaf_ids)]
            key = keys[0] if keys else None
            break
        start += num_rows
    return FormatError(
        f"{error}. The file is damaged, or its writer did not check what it wrote.",
        where=f'column "{projection.fields[number].name}"',
        path=key,
    )
