"""The files of a full text index (spec: indices, 7.2): those of each partition, and one that names them."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io import _kernels
from lance_io.codecs.roaring import encode_roaring
from lance_io.index.build.index_file import NewIndexFile, no_metadata
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from lance_io.index.text.text_parameters import TextParameters

METADATA_FILE: Final = "metadata.lance"
MERGED_BYTES: Final = 1 << 20
"""Of the rows that are made at a time."""
ELEMENT_COLUMN: Final = "_doc_index_"
"""Where a document stands in the lists of its row: a column for each depth, numbered."""
_BYTES = pa.large_binary()
_TAIL: Final = "varint_delta_v1"
_FIRST_TAIL: Final = "fixed32_v1"  # of format 1

Columns = tuple[Any, ...]
"""Tokens of a run, as `TermLists.take` returns them."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Documents of a partition, and their tokens in order.

    num_documents  of the run
    lengths        returns the number of tokens of each, i32
    documents      their rows and lengths, in pieces
    terms          the tokens
    """

    num_documents: int
    lengths: Callable[[], np.ndarray[Any, Any]]
    documents: Callable[[], Iterator[pa.RecordBatch]]
    terms: Callable[[], Iterator[Columns]]


DOCUMENTS: Final = pa.schema(
    [pa.field("_rowid", pa.uint64(), nullable=False), pa.field("_num_tokens", pa.uint32(), nullable=False)]
)


class PartitionFiles:
    """The files of one partition.

    number       of the partition
    runs         its documents
    parameters   of the index
    metadata     of the files with postings
    is_format_1  whether these files are of format 1
    """

    def __init__(
        self,
        number: int,
        runs: Sequence[Run],
        parameters: TextParameters,
        metadata: dict[str, str],
        *,
        is_format_1: bool,
    ) -> None:
        self._prefix = f"part_{number}_"
        self._runs = runs
        self._parameters = parameters
        self._metadata = metadata
        self._is_format_1 = is_format_1

    def files(self) -> Iterator[NewIndexFile]:
        """The files; see `IndexBuilder.files`."""
        lengths = np.concatenate([run.lengths() for run in self._runs])
        total = int(lengths.sum(dtype=np.uint64))
        merger = _kernels.TermMerger(
            lengths,
            [run.num_documents for run in self._runs],
            block_size=self._parameters.block_size,
            with_positions=self._parameters.with_position,
            is_first_format=self._is_format_1,
        )
        del lengths
        schema = posting_schema(with_positions=self._parameters.with_position, is_format_1=self._is_format_1)
        rows = self._rows(merger, schema)
        yield NewIndexFile(f"{self._prefix}invert.lance", schema, rows, lambda: self._metadata)
        tokens = iter([_token_batch(merger)])
        del merger
        yield NewIndexFile(f"{self._prefix}tokens.lance", _TOKENS, tokens, no_metadata)
        documents = (batch for run in self._runs for batch in run.documents())
        first = next(documents)  # says whether documents are elements of lists
        batches = chain([first], documents)
        yield NewIndexFile(f"{self._prefix}docs.lance", first.schema, batches, lambda: {"total_tokens": str(total)})

    def _rows(self, merger: _kernels.TermMerger, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        sources = [run.terms() for run in self._runs]
        while True:
            num_rows, buffers, wanting = merger.merge(MERGED_BYTES)
            if num_rows:
                yield _posting_batch(schema, num_rows, buffers)
            if wanting is not None:
                merger.feed(wanting, next(sources[wanting], None))
            elif not num_rows:
                return


def posting_schema(*, with_positions: bool, is_format_1: bool) -> pa.Schema:
    """The schema of a file of postings. is_format_1: whether the file is of format 1"""
    fields = [
        pa.field("_posting", pa.list_(_BYTES), nullable=False),
        pa.field("_max_score", pa.float32(), nullable=False),
        pa.field("_length", pa.uint32(), nullable=False),
        pa.field("_impacts", pa.list_(_BYTES), nullable=False),
    ]
    if with_positions and is_format_1:
        fields.append(pa.field("_position", pa.list_(pa.list_(_BYTES)), nullable=False))
    elif with_positions:
        fields.append(pa.field("_compressed_position", _BYTES, nullable=False))
        fields.append(pa.field("_position_block_offset", pa.list_(pa.uint32()), nullable=False))
    return pa.schema(fields)


def _posting_batch(schema: pa.Schema, num_rows: int, buffers: list[Any]) -> pa.RecordBatch:
    memory = [pa.py_buffer(buffer) for buffer in buffers]

    def lists(first: int) -> pa.Array:
        count = memory[first + 1].size // 8 - 1
        items = pa.Array.from_buffers(_BYTES, count, [None, *memory[first + 1 : first + 3]])
        return pa.Array.from_buffers(pa.list_(_BYTES), num_rows, [None, memory[first]], children=[items])

    columns = [
        lists(0),
        pa.Array.from_buffers(pa.float32(), num_rows, [None, memory[3]]),
        pa.Array.from_buffers(pa.uint32(), num_rows, [None, memory[4]]),
        lists(5),
    ]
    if "_position" in schema.names:
        pieces = pa.Array.from_buffers(_BYTES, memory[14].size // 8 - 1, [None, *memory[14:16]])
        num_documents = memory[13].size // 4 - 1
        documents = pa.Array.from_buffers(pa.list_(_BYTES), num_documents, [None, memory[13]], children=[pieces])
        columns.append(pa.Array.from_buffers(schema[-1].type, num_rows, [None, memory[12]], children=[documents]))
    elif len(schema) > len(columns):
        starts = pa.Array.from_buffers(pa.uint32(), memory[11].size // 4, [None, memory[11]])
        columns.append(pa.Array.from_buffers(_BYTES, num_rows, [None, *memory[8:10]]))
        columns.append(pa.Array.from_buffers(pa.list_(pa.uint32()), num_rows, [None, memory[10]], children=[starts]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_TOKENS: Final = pa.schema(
    [
        pa.field("_token_fst_bytes", _BYTES, nullable=False),
        pa.field("_token_next_id", pa.uint32(), nullable=False),
        pa.field("_token_total_length", pa.uint64(), nullable=False),
    ]
)


def _token_batch(merger: _kernels.TermMerger) -> pa.RecordBatch:
    token_map, num_tokens, token_bytes = merger.token_map()
    ends = pa.py_buffer(np.array([0, len(token_map)], np.int64))
    columns = [
        pa.Array.from_buffers(_BYTES, 1, [None, ends, pa.py_buffer(token_map)]),
        pa.array([num_tokens], pa.uint32()),
        pa.array([token_bytes], pa.uint64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_TOKENS)


def document_batch(rows: Any, lengths: Any, places: npt.NDArray[np.uint32] | None = None) -> pa.RecordBatch:
    """Documents: their rows (i64), numbers of tokens (i32), and places in the lists of their rows."""
    memory = [pa.py_buffer(rows), pa.py_buffer(lengths)]
    count = memory[1].size // 4
    columns = [
        pa.Array.from_buffers(field.type, count, [None, buffer])
        for field, buffer in zip(DOCUMENTS, memory, strict=True)
    ]
    schema = DOCUMENTS
    for depth, column in enumerate(() if places is None else places.T):
        columns.append(pa.array(np.ascontiguousarray(column), pa.uint32()))
        schema = schema.append(pa.field(f"{ELEMENT_COLUMN}{depth}", pa.uint32(), nullable=False))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def partition_metadata(parameters: TextParameters, format_version: int) -> dict[str, str]:
    """The metadata that files of postings have."""
    metadata = {"posting_block_size": str(parameters.block_size), "format_version": str(format_version)}
    if format_version == 1:
        return metadata
    metadata["posting_tail_codec"] = _TAIL
    if parameters.with_position:
        metadata |= {"positions_layout": "shared_stream_v2", "positions_codec": "packed_delta_v1"}
    return metadata


def index_metadata_file(
    parameters: TextParameters, numbers: Iterable[int], partition_metadata: dict[str, str], name: str = METADATA_FILE
) -> NewIndexFile:
    """The file that names the partitions, by their numbers."""
    schema = pa.schema([pa.field("deleted_fragments", pa.binary(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([encode_roaring(np.empty(0, np.uint32))], pa.binary())], schema=schema)
    metadata = {
        "partitions": json.dumps([*numbers], separators=(",", ":")),
        "params": parameters.to_json(),
        "token_set_format": "fst",
        "posting_tail_codec": _FIRST_TAIL,
        **partition_metadata,
    }
    return NewIndexFile(name, schema, iter([batch]), lambda: metadata)
