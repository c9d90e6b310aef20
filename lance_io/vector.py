"""Tables of vectors. Module and names are those of pylance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lance_io.errors import UsageError

__all__ = ["vec_to_table"]


def vec_to_table(
    data: Any, names: str | list[str] | None = None, ndim: int | None = None, check_ndim: bool = True
) -> pa.Table:
    """Build a table with a column of vectors, which are fixed-size lists of float32.

    Args:
        data: The vectors: a list, a 2-dimensional array, or a dict from ids to vectors, whose keys become a column.
        names: Names of the columns: "vector" by default; for a dict two, "id" and "vector" by default.
        ndim: Number of dimensions of a vector; None for that of the first vector.
        check_ndim: Whether to check the dimensions of all vectors.

    Returns:
        The table, with one row for each vector.

    Raises:
        ValueError: The vectors have different lengths, there are none, or the number of names is wrong.
        NotImplementedError: `data` has another type.
    """
    if isinstance(data, dict):
        vectors, wanted = list(data.values()), ["id", "vector"]
    elif isinstance(data, (list, np.ndarray)):
        vectors, wanted = list(data), ["vector"]
    else:
        raise NotImplementedError(f"data must be dict, list, or ndarray, got {type(data)} instead")
    chosen = wanted if names is None else [names] if isinstance(names, str) else list(names)
    if len(chosen) != len(wanted):
        raise UsageError(f"Length of names ({len(chosen)}) does not match length of arrays ({len(wanted)})")
    if not vectors:
        raise UsageError("expected at least one vector")
    size = len(vectors[0]) if ndim is None else ndim
    wrong = next((vector for vector in vectors if len(vector) != size), None) if check_ndim else None
    if wrong is not None:
        raise UsageError(f"Expected {size} dimensions but got {len(wrong)} for {wrong}")
    numbers = np.asarray(vectors, dtype=np.float32).reshape(-1)
    columns = [pa.FixedSizeListArray.from_arrays(pa.array(numbers), size)]
    if isinstance(data, dict):
        columns.insert(0, pa.array(list(data)))
    return pa.table(columns, names=chosen)
