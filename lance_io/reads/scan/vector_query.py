"""`nearest`: the keywords of a vector search, checked by themselves and then against a table's schema."""

from __future__ import annotations

import operator
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io.errors import BindError, UsageError
from lance_io.format.extensions import to_bfloat16
from lance_io.format.per_schema import PerSchema
from lance_io.format.schema import split_path
from lance_io.index.vector.distances import Metric
from lance_io.index.vector.vector_arrays import as_floats, vector_rows
from lance_io.reads.version.column_lists import PreparedCache, fields_along
from lance_io.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_io.format.schema import Field, Schema

K: Final = 10  # default number of rows
_COUNT_BITS: Final = 64
_REFINE_END: Final = 1 << 32
_METRICS: Final = {**{metric.value: metric for metric in Metric}, "euclidean": Metric.L2}
_APPROX_MODES: Final = ("fast", "normal", "accurate")
_BFLOAT16: Final = "lance.bfloat16"
_FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())
_NAMES: Final = {pa.float16(): "Float16", pa.float32(): "Float32", pa.float64(): "Float64", pa.uint8(): "UInt8"}
_COLUMNS: Final[PerSchema[PreparedCache]] = PerSchema("columns of vector searches")


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """The parameters of a vector search.

    column       name or dotted path of the vectors
    queries      [m, dim] of float64 (of uint8 if given so)
    is_batch     whether the caller gave several, even if there is only one
    k            rows for each query; None for the limit of the scan, or 10
    metric       None for that of the index, or of the type
    use_index    whether an index may answer
    lower, upper  float32 values: keeps distances at or above the first and below the second; None for no bound
    hints        parameters for indices only, by name: "nprobes", "minimum_nprobes", "maximum_nprobes",
                 "refine_factor", "ef", "query_parallelism", "approx_mode", "search_effort"; left out if not given
    """

    column: str
    queries: npt.NDArray[Any]
    is_batch: bool
    k: int | None
    metric: Metric | None
    use_index: bool
    lower: float | None
    upper: float | None
    hints: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class VectorColumn:
    """The column of a search.

    path      names from the top-level column down
    field     its field
    dtype     stored type of its arrays: fixed-size lists, or lists of such
    item      type of the values: a float, uint8, or bfloat16 as fixed-size binary
    is_multi  whether a row holds several vectors
    """

    path: tuple[str, ...]
    field: Field
    dtype: pa.DataType
    item: pa.DataType
    dim: int
    is_multi: bool

    @property
    def is_bytes(self) -> bool:
        """Whether it holds bits, which only the Hamming distance compares."""
        return bool(self.item == pa.uint8())

    def metric(self, wanted: Metric | None) -> Metric:
        """The metric of a search. Raises `UsageError` for one that the type does not support."""
        if wanted is None:
            return Metric.HAMMING if self.is_bytes else Metric.L2
        if self.is_bytes != (wanted is Metric.HAMMING):
            name = _NAMES.get(self.item, "BFloat16")
            raise UsageError(f"Invalid user input: Distance type {wanted} does not support {name} vectors")
        return wanted

    def queries(self, query: VectorQuery) -> npt.NDArray[Any]:
        """The queries as values of the column's type, bfloat16 as float32.

        Raises `UsageError` for a number outside of the range of bytes.
        """
        given = query.queries
        with np.errstate(all="ignore"):
            if self.is_bytes:
                whole: npt.NDArray[Any] = np.trunc(given)
                if not ((whole >= 0) & (whole <= 255)).all():
                    raise UsageError(f"Column {query.column} holds uint8; a query of {_shown(given)} does not fit")
                return whole.astype(np.uint8)
            if self.item in _FLOATS:
                return given.astype(np.dtype(self.item.to_pandas_dtype()))
            return np.asarray(as_floats(to_bfloat16(given.astype(np.float32))))


def _shown(values: npt.NDArray[Any]) -> str:
    bad = values[~((values >= 0) & (values < 256))]
    return str(bad.ravel()[0])


def vector_query(
    column: str,
    q: Any,
    k: int | None = None,
    metric: str | None = None,
    nprobes: int | None = None,
    minimum_nprobes: int | None = None,
    maximum_nprobes: int | None = None,
    refine_factor: int | None = None,
    use_index: bool = True,
    ef: int | None = None,
    query_parallelism: int | None = None,
    approx_mode: str = "normal",
    distance_range: tuple[float | None, float | None] | None = None,
    search_effort: float | None = None,
) -> VectorQuery:
    """The search of these keywords of `nearest`; see `ScannerBuilder.nearest`.

    Raises `TypeError` for values of the wrong type, `ValueError` for values out of range, as pylance does.
    """
    if not isinstance(column, str):
        raise TypeError(f"nearest: column must be a str, got {type(column)}")
    queries, is_batch = read_queries(q)
    rules: dict[str, tuple[str, Any]] = {
        "k": ("Nearest-K must be > 0 but got {}", k),
        "refine_factor": ("Refine factor must be 1 or more got {}", refine_factor),
        "ef": ("ef must be > 0 but got {}", ef),
        "minimum_nprobes": ("minimum_nprobes must be >= 1, got {}", minimum_nprobes),
        "maximum_nprobes": ("maximum_nprobes must be >= 1, got {}", maximum_nprobes),
    }
    if search_effort is None:  # `search_effort` takes precedence
        rules["nprobes"] = ("Nprobes must be > 0 but got {}", nprobes)
    hints: dict[str, Any] = {name: _whole(name, *rule) for name, rule in rules.items() if rule[1] is not None}
    if hints.get("refine_factor", 1) >= _REFINE_END:
        raise OverflowError(f"refine_factor must be below {_REFINE_END}, got {refine_factor}")
    exact = hints.get("nprobes")
    least, most = hints.get("minimum_nprobes", exact), hints.get("maximum_nprobes", exact)
    if least is not None and most is not None and least > most:
        raise UsageError("minimum_nprobes must be <= maximum_nprobes")
    if query_parallelism is not None:
        hints["query_parallelism"] = operator.index(query_parallelism)
        if query_parallelism < -1:
            raise UsageError("query_parallelism must be >= -1")
    if approx_mode not in _APPROX_MODES:
        raise UsageError(f"approx_mode must be one of 'fast', 'normal', or 'accurate', got {approx_mode!r}")
    hints["approx_mode"] = approx_mode
    if search_effort is not None:
        hints["search_effort"] = _effort(search_effort)
    if not isinstance(use_index, (bool, np.bool_)):
        raise TypeError(f"use_index must be a bool, got {type(use_index)}")
    lower, upper = _range(distance_range)
    return VectorQuery(
        column=column,
        queries=queries,
        is_batch=is_batch,
        k=hints.pop("k", None),
        metric=_metric(metric),
        use_index=bool(use_index),
        lower=lower,
        upper=upper,
        hints=hints,
    )


def _whole(name: str, rule: str, value: Any) -> int:
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {type(value).__name__!r} object cannot be interpreted as an integer")
    number = operator.index(value)
    if number < 1:
        raise UsageError(rule.format(number))
    if number >= 1 << _COUNT_BITS:
        raise OverflowError(f"{name} must be below 2**{_COUNT_BITS}, found {number}")
    return number


def _effort(value: Any) -> float:
    effort = _real("search_effort", value)
    if not (isfinite(effort) and 0 <= effort <= 1):
        raise UsageError(f"search_effort must be finite and in [0, 1], got {value}")
    return effort


def _real(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: must be real number, not {type(value).__name__}")
    return float(value)


def _range(given: Any) -> tuple[float | None, float | None]:
    """The bounds of `distance_range` as float32 values. NaN is above every number, as pylance orders it."""
    if given is None:
        return None, None
    if len(given) != 2:
        raise UsageError("distance_range must be a tuple of (lower_bound, upper_bound)")
    with np.errstate(over="ignore"):
        bounds = [None if bound is None else float(np.float32(_real("distance_range", bound))) for bound in given]
    lower, upper = bounds
    return lower, None if upper is not None and isnan(upper) else upper


def _metric(given: Any) -> Metric | None:
    if given is None:
        return None
    metric = _METRICS.get(str(given).lower())
    if metric is None:
        raise UsageError(f"Metric type '{given}' is not supported, expected one of: {', '.join(_METRICS)}")
    return metric


# -- queries ---------------------------------------------------------------------------------------------------------


def read_queries(given: Any) -> tuple[npt.NDArray[Any], bool]:
    """Query vectors as a matrix, and whether the caller gave several.

    given  numbers in a list, tuple or array (numpy, Arrow, or convertible to these), a vector of a table (an Arrow
           scalar), or several vectors: a matrix, or a list or Arrow array of vectors
    Raises `TypeError` for anything else, `UsageError` for none, and for vectors of different sizes.
    """
    if isinstance(given, pa.Scalar):
        given = given.value if isinstance(given, pa.ExtensionScalar) else given
        given = (
            given.values if isinstance(given, (pa.FixedSizeListScalar, pa.ListScalar, pa.LargeListScalar)) else given
        )
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, (pa.Array, pa.Scalar)):
        return _arrow_queries(given)
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], (list, tuple, np.ndarray, pa.Array)):
        vectors = [read_queries(vector)[0] for vector in given]
        dim = vectors[0].shape[1]
        other = next((vector.shape[1] for vector in vectors if vector.shape[1] != dim), None)
        if other is not None:
            raise UsageError(f"All query vectors must have the same length, but got {dim} and {other}")
        if any(len(vector) != 1 for vector in vectors):
            raise UsageError("q must be a vector or a list of vectors; each of them is one")
        return np.concatenate(vectors), True
    if not isinstance(given, (list, tuple)) and not hasattr(given, "__array__"):
        if given is None or isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
            raise TypeError(f"Query vectors should be an array of floats, got {type(given)}")
        given = list(given)
    values = np.asarray(given)
    values = values.astype(np.uint8 if values.dtype == np.uint8 else np.float64)
    if values.ndim not in (1, 2) or not values.size:
        raise UsageError(f"q must be a vector or several of one size, found the shape {values.shape}")
    return np.atleast_2d(values), values.ndim == 2


def _arrow_queries(given: Any) -> tuple[npt.NDArray[Any], bool]:
    dtype = given.type
    name = getattr(dtype, "extension_name", None)
    stored = given.storage if isinstance(given, pa.ExtensionArray) else given
    is_plain = isinstance(given, pa.Array) and (pa.types.is_floating(dtype) or pa.types.is_integer(dtype))
    if name == _BFLOAT16 and isinstance(given, pa.Array):
        stored, is_plain = stored.cast(pa.binary(2)), True
    if is_plain:
        if not len(stored):
            raise UsageError("q must be a vector or several of one size, found none")
        stored = pa.FixedSizeListArray.from_arrays(stored, len(stored))
        return _as_queries(stored), False
    if isinstance(stored, pa.ListArray) and len(stored) and not stored.null_count:
        sizes = np.diff(stored.offsets.to_numpy())
        if sizes.min() != sizes.max():
            raise UsageError(
                f"All query vectors must have the same length, but got {sizes[0]} and {sizes[sizes != sizes[0]][0]}"
            )
        stored = pa.FixedSizeListArray.from_arrays(stored.flatten(), int(sizes[0]))
    if isinstance(stored, pa.FixedSizeListArray) and len(stored) and not stored.null_count:
        return _as_queries(stored), True
    raise TypeError(f"query vector must be list-like or pa.FloatingPointArray but received {dtype}")


def _as_queries(vectors: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    item = vectors.type.value_type
    if isinstance(item, pa.BaseExtensionType):
        items = vectors.flatten().storage
        vectors = pa.FixedSizeListArray.from_arrays(items, vectors.type.list_size)
        item = items.type
    is_number = pa.types.is_floating(item) or pa.types.is_integer(item) or item == pa.binary(2)
    if not is_number or not vectors.type.list_size:
        raise TypeError(f"query vector must be list-like or pa.FloatingPointArray but received {item}")
    matrix = vector_rows(vectors).matrix
    if item == pa.binary(2):
        matrix = as_floats(matrix)
    return matrix if matrix.dtype == np.uint8 else matrix.astype(np.float64)


# -- columns ---------------------------------------------------------------------------------------------------------


def vector_column(schema: Schema, query: VectorQuery) -> VectorColumn:
    """The column of a search in a table's schema.

    Raises `ValueError` for an unknown column, a value type without a distance, queries of another size, or several
    queries of several vectors each; `TypeError` for a column without vectors.
    """
    known = _COLUMNS.get(schema) or _COLUMNS.keep(schema, PreparedCache())
    column: VectorColumn | None = known.get(query.column)
    if column is None:
        column = _named_column(schema, query.column)
        known.put(query.column, column)
    size = query.queries.shape[1]
    if size != column.dim:
        raise UsageError(f"Query vector size {size} does not match index column size {column.dim}")
    return column


def _named_column(schema: Schema, name: str) -> VectorColumn:
    is_quoted = "`" in name and schema.top(name) is not None
    path = (name,) if is_quoted else tuple(split_path(name))
    try:
        field = fields_along(schema, path)[-1]
    except BindError as error:
        raise UsageError(f"Embedding column {name} is not in the dataset. {error.message}") from error
    dtype = field.arrow_type
    is_multi = (pa.types.is_list(dtype) or pa.types.is_large_list(dtype)) and pa.types.is_fixed_size_list(
        dtype.value_type
    )
    vector = dtype.value_type if is_multi else dtype
    if not pa.types.is_fixed_size_list(vector):
        raise TypeError(f"Query column {name} must be a vector. Got {field.to_arrow().type}.")
    item, dim = vector.value_type, vector.list_size
    is_bfloat16 = item == pa.binary(2) and any(_BFLOAT16 in node.logical_type for node in field.walk())
    if not is_bfloat16 and item not in _NAMES:
        raise UsageError(
            f"Column {name} has element type {item}: vector element is not expected type "
            "(float16, float32, float64, bfloat16 or uint8)"
        )
    return VectorColumn(path, field, dtype, item, dim, is_multi)
