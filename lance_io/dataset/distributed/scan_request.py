"""Parameters of a pickled scan, the share of one task, and the resulting columns."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lance_io.errors import BindError, UnsupportedError
from lance_io.reads.version.column_lists import OutputColumn, Projection, project, project_taken
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID, ROW_OFFSET, SYSTEM_COLUMNS, system_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.reads.version.state import DatasetState

FRAGMENT_ID: Final = "_fragid"
SortKey: TypeAlias = tuple[tuple[str, ...], bool, bool]
"""The path of a column, whether it ascends, and whether nulls come first."""


def _set_values(instance: Any, values: Sequence[Any]) -> None:
    """Take the values of a pickle; one of an older release lacks the last ones."""
    parameters = fields(instance)
    defaults = [parameter.default for parameter in parameters[len(values) :]]
    for parameter, value in zip(parameters, [*values, *defaults], strict=True):
        object.__setattr__(instance, parameter.name, value)


@dataclass(frozen=True, slots=True)
class ScanPart:
    """The share of one task in a scan. It holds plain values and pickles.

    Attributes:
        number: Position among the parts.
        version: Version of the table.
        ranges: `(fragment id, first row, rows)` of physical rows, one for each fragment, in the order of the table.
        num_bytes: Estimated decoded bytes of the columns read.
        fragments: The manifest's entries of the fragments of `ranges`, serialized.
        named: Rows that indices name, for each of `ranges`, see `named_rows`; None where all its rows are examined.
            Empty if no index was asked.
        is_exact: Whether the filter passes all rows of `named`.
    """

    number: int
    version: int
    ranges: tuple[tuple[int, int, int], ...]
    num_bytes: int
    fragments: tuple[bytes, ...] = field(repr=False)
    named: tuple[bytes | None, ...] = field(default=(), repr=False)
    is_exact: bool = False

    def __setstate__(self, values: Sequence[Any]) -> None:
        """Take the values of a pickle."""
        _set_values(self, values)

    @property
    def physical_rows(self) -> int:
        """Rows of the ranges, including deleted ones."""
        return sum(rows for _, _, rows in self.ranges)


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Parameters of a scan; see `TableVersion.scan`.

    Pickles hold the values in this order; new parameters come last.
    """

    columns: tuple[tuple[str, ...], ...] | None = None
    names: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    with_fragment_id: bool = False
    blobs_as_bytes: bool = True
    members: tuple[tuple[str, ...], ...] = ()
    offset: int = 0
    row_versions: tuple[str, ...] = ()
    order: tuple[SortKey, ...] = ()

    def __setstate__(self, values: Sequence[Any]) -> None:
        """Take the values of a pickle."""
        _set_values(self, values)

    @property
    def needs_row_ids(self) -> bool:
        """Whether a task may need the row id sequences, which can be large."""
        named = any(path[0] in SYSTEM_COLUMNS for path in self.columns or ())
        return self.with_row_id or self.filter is not None or named or bool(self.row_versions)

    @property
    def quoted_columns(self) -> list[str] | None:
        """The columns as a list of quoted paths."""
        if self.columns is None:
            return None
        return [quoted(path) for path in self.columns]


def key_request(request: ScanRequest) -> ScanRequest:
    """The scan of the sort keys of a scan, with the addresses of rows."""
    paths = tuple(dict.fromkeys(path for path, _, _ in request.order))
    filter = request.filter
    return ScanRequest(columns=paths, filter=filter, with_row_address=True, blobs_as_bytes=request.blobs_as_bytes)


def quoted(path: Sequence[str]) -> str:
    """A path as a column list names it."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def scan_projection(state: DatasetState, request: ScanRequest) -> Projection:
    """The output columns of a scan.

    Raises `BindError` for columns that the table lacks, or that occur twice, and `UnsupportedError` for `_rowoffset`,
    which a task cannot compute.
    """
    if request.columns is not None:
        plain = _name_columns(state, request)
    else:
        plain = _with_members(state, request) if request.members else project(state.schema, None)
    outputs = [*state.shown(plain, "all_binary" if request.blobs_as_bytes else None).outputs]
    wanted: tuple[tuple[str, str, bool], ...] = (
        (ROW_ID, ROW_ID, request.with_row_id),
        (ROW_ADDRESS, ROW_ADDRESS, request.with_row_address),
        (FRAGMENT_ID, ROW_ADDRESS, request.with_fragment_id),
    )
    wanted += tuple((name, name, True) for name in request.row_versions)
    outputs += [OutputColumn(name, (source,), system_field(name)) for name, source, asked in wanted if asked]
    by_name = {output.name: output for output in outputs}
    if len(by_name) < len(outputs):
        raise BindError(f"columns occur twice: {', '.join(output.name for output in outputs)}")
    if any(output.path == (ROW_OFFSET,) for output in outputs):
        raise UnsupportedError(f"{ROW_OFFSET} counts the rows of the whole table, which a task does not see")
    missing = [name for name in request.names or () if name not in by_name]
    if missing:
        raise BindError(f"the schema names {', '.join(missing)}; the columns of this read are {', '.join(by_name)}")
    names = request.names
    return replace(plain, outputs=tuple(outputs if names is None else [by_name[name] for name in names]))


def _with_members(state: DatasetState, request: ScanRequest) -> Projection:
    """All columns, structs that `request.members` names with these members only."""
    narrowed = {path[0] for path in request.members}
    whole = [(name,) for name in state.schema.names if name not in narrowed]
    return project_taken(state.schema, [quoted(path) for path in (*whole, *request.members)])


def _name_columns(state: DatasetState, request: ScanRequest) -> Projection:
    """Members of structs as columns of their own, named by their path."""
    projection = project(state.schema, request.quoted_columns)
    named = [
        replace(output, name=".".join(output.path), field=output.field.with_name(".".join(output.path)))
        for output in projection.outputs
    ]
    return replace(projection, outputs=tuple(named))


def row_width(dtypes: Sequence[pa.DataType]) -> tuple[float, int]:
    """Fixed bytes of a row of such columns, and the number of its values without a fixed width."""
    widths = [decoded_width(dtype) for dtype in dtypes]
    return sum(fixed for fixed, _ in widths), sum(variable for _, variable in widths)


def decoded_width(dtype: pa.DataType) -> tuple[float, int]:
    """Fixed bytes of a value, and the number of its parts without a fixed width."""
    if isinstance(dtype, pa.BaseExtensionType):
        return decoded_width(dtype.storage_type)
    if pa.types.is_dictionary(dtype):
        return decoded_width(dtype.value_type)
    if pa.types.is_fixed_size_list(dtype):
        fixed, variable = decoded_width(dtype.value_type)
        return dtype.list_size * fixed, dtype.list_size * variable
    if pa.types.is_struct(dtype):
        return row_width([member.type for member in dtype])
    if pa.types.is_null(dtype):
        return 0.0, 0
    try:
        return dtype.bit_width / 8, 0
    except ValueError:  # texts, lists, maps
        return 0.0, 1
