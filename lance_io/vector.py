"""Tables of vectors, under the module name that pylance gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lance_io.errors import UsageError

__all__ = ["vec_to_table"]


def vec_to_table(
    data: Any, names: str | list[str] | None = None, ndim: int | None = None, check_ndim: bool = True
) -> pa.Table:
    """A table with a column of vectors, fixed-size lists of float32.

    data        vectors: a list of them, a 2-dimensional array, or a dict, whose keys become a column beside them
    names       of the columns: "vector" by default; of a dict two, "id" and "vector"
    ndim        numbers in a vector; that of the first one by default
    check_ndim  whether each of them is looked at

    Raises `ValueError` for vectors of several lengths, for no vectors and for too many or few names,
    `NotImplementedError` for other data.
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
    wrong = next((one for one in vectors if len(one) != size), None) if check_ndim else None
    if wrong is not None:
        raise UsageError(f"Expected {size} dimensions but got {len(wrong)} for {wrong}")
    numbers = np.asarray(vectors, dtype=np.float32).reshape(-1)
    columns = [pa.FixedSizeListArray.from_arrays(pa.array(numbers), size)]
    if isinstance(data, dict):
        columns.insert(0, pa.array(list(data)))
    return pa.table(columns, names=chosen)
