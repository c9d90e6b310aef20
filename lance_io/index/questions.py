"""Questions to a scalar index, and the protocol that each kind of segment implements.

    question   one condition on the column of an index: `Compare`, `IsNull`, `Prefix`, `Contains`, `Labels`
    segment    the part of an index that is kept in memory: a lookup, keys, zones. Made from its files by `open_segment`
    search     a generator that yields `Blocks` of a file at most once, is sent their columns, and returns an `Answer`

Segments do no I/O. A segment that cannot answer a question says so before anything is read (`answers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    import pyarrow as pa

    from lance_io.index.details import IndexDetails, Space
    from lance_io.index.rows.row_set import Answer


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Values between two bounds, in the order of values (spec: indices, 2.1); None for no bound.

    low, high            of the column's type
    has_low, has_high    whether the bounds belong to it
    """

    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    has_low: bool = True
    has_high: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Within:
    """A value of one interval; null for nulls."""

    interval: Interval


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """A value that equals one of these; null for nulls.

    values  of the column's type, without nulls; floats with both zeros or none
    """

    values: pa.Array


@dataclass(frozen=True, slots=True)
class IsNull:
    """A null."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A text or binary that begins with these bytes.

    is_exact  False if more has to be checked
    """

    prefix: bytes
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Contains:
    """A text that contains another."""

    needle: str


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A list that contains one of these items, or all of them; null for null lists.

    items  of the item type; a null stands for a null item
    """

    items: pa.Array
    needs_all: bool


Question: TypeAlias = Within | OneOf | IsNull | Prefix | Contains | Labels


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Row ranges of an index file, as a request of a search; answered by one list of columns for each range.

    file       name of the file
    columns    names, in the order of the answer
    ranges     first row of each, and the row after its last; ascending
    prepare    checks the columns of a range, given its first row, and gives what the answer and the memory have in
               their place; None for the columns as they are
    weigh      the runs of rows that a range of the answer decodes to, at most; None if it decodes to no more rows than
               it has
    needs_all  whether all ranges of the answer are decoded; otherwise the lightest one may be enough
    """

    file: str
    columns: tuple[str, ...]
    ranges: Sequence[tuple[int, int]]
    prepare: Callable[[int, list[pa.Array]], Prepared] | None = None
    weigh: Callable[[list[pa.Array]], int] | None = None
    needs_all: bool = True


class Prepared(Protocol):
    """A range of an index file in the form that searches use; immutable."""

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TableFile:
    """An index file that was opened.

    num_rows  rows of the file
    types     of its columns, by name
    metadata  of its schema
    columns   all rows of the columns that its kind keeps in memory
    buffers   global buffers that the metadata names, by the key that names them
    """

    num_rows: int
    types: Mapping[str, pa.DataType]
    metadata: Mapping[str, str]
    columns: Mapping[str, pa.Array]
    buffers: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class FileUse:
    """What a kind reads of a file when it opens a segment.

    name      of the file
    columns   to keep in memory
    searched  columns of which searches read some rows
    buffers   keys of the metadata that name a global buffer to keep
    """

    name: str
    columns: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()


Search: TypeAlias = "Generator[Blocks, list[Any], Answer]"


class Segment(Protocol):
    """The part of a segment that is kept in memory; immutable."""

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        ...

    @property
    def num_rows(self) -> int | None:
        """Rows that it indexes, including nulls; None if it does not know."""
        ...

    def answers(self, question: Question) -> bool | None:
        """Whether the segment answers a question: True exactly, False with an upper bound, None not at all."""
        ...

    def blocks(self) -> Blocks | None:
        """All that searches may read of its files; None if they read nothing."""
        ...

    def search(self, question: Question, *, needs_null: bool) -> Search:
        """The answer. Raises `FormatError` for damaged files.

        needs_null  whether the rows for which the condition is null are wanted, too
        """
        ...


class OpenSegment(Protocol):
    """Makes a segment of its files."""

    def __call__(
        self, files: Mapping[str, TableFile], dtype: pa.DataType | None, details: IndexDetails, space: Space
    ) -> Segment:
        """dtype: of the indexed values; None for the type that the files have."""
        ...
