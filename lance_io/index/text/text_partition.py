"""A partition of an INVERTED index, from its files (spec: indices, 7.2).

    part_N_tokens.lance  token -> number, a transducer in one row, or a row for each token
    part_N_docs.lance    row number and number of tokens of each document
    part_N_invert.lance  by a token's number: its documents in blocks, and its positions in them

A partition keeps the first two in memory, and of the third the numbers of documents. Upper bounds of scores are
computed from the blocks, so those that the last file has are not read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lance_io._kernels import DamagedError, TermPostings, find_tokens, near_tokens
from lance_io.errors import FormatError, UnsupportedError
from lance_io.index.text.listed_tokens import NUMBER_COLUMN, TOKEN_COLUMN, ListedTokens
from lance_io.index.text.text_files import ELEMENT_COLUMN, METADATA_FILE
from lance_io.index.text.text_parameters import parameters_of_json
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from lance_io.index.text.text_parameters import TextParameters

TOKENS, DOCUMENTS, POSTINGS = "tokens", "docs", "invert"
FIRST_TOKENS_FILE, FIRST_PARAMETERS = "tokens.lance", "tokenizer"
"""The file of tokens of the first releases, which had no partitions, and the tokenizer in its metadata."""
MAP: Final = "_token_fst_bytes"
LISTED_TOKENS: Final = (TOKEN_COLUMN, NUMBER_COLUMN)
DOCUMENT_COLUMNS: Final = ("_rowid", "_num_tokens")
_DEPTH_MAX: Final = 64
NUM_DOCUMENTS: Final = "_length"
_BLOCKS: Final = ("_posting",)
_STREAMS: Final = ("_compressed_position", "_position_block_offset")
_LISTED: Final = ("_position",)
_PARTITIONS_MAX: Final = 1 << 16
_SIZES: Final = (128, 256)
_TAILS: Final = {"fixed32_v1": True, "varint_delta_v1": False}
_FORMATS: Final = ("1", "2", "3")


def partition_file(number: int, kind: str) -> str:
    """Name of a partition's file."""
    return f"part_{number}_{kind}.lance"


@dataclass(frozen=True, slots=True, eq=False)
class TextSettings:
    """Settings of a segment.

    partitions  their numbers
    parameters  of the tokenizer
    """

    partitions: tuple[int, ...]
    parameters: TextParameters


def read_settings(metadata: Mapping[str, str]) -> TextSettings:
    """The settings in the metadata of `metadata.lance`.

    Raises `FormatError` for damaged ones, `UnsupportedError` for a format that this release does not read,
    `UnknownTokenizer` for a tokenizer that is not there.
    """
    version = metadata.get("format_version", "1")
    if version not in _FORMATS:
        raise UnsupportedError(f"INVERTED files of format {version[:20]}")
    tokens = metadata.get("token_set_format", "arrow")
    if tokens not in ("fst", "arrow"):
        raise UnsupportedError(f"a token set of format {tokens[:20]!r}")
    numbers = _json(metadata, "partitions")
    is_list = isinstance(numbers, list) and all(type(number) is int and 0 <= number < 1 << 64 for number in numbers)
    if not is_list or len(numbers) > _PARTITIONS_MAX:
        raise FormatError(f"partitions: expected a list of numbers, found {str(numbers)[:40]}")
    if len(set(numbers)) < len(numbers):
        raise FormatError(f"partitions: a number stands twice in {str(numbers)[:60]}")
    params = metadata.get("params")
    if params is None:
        raise FormatError(f"params: there is none in the metadata of {METADATA_FILE}")
    return TextSettings(tuple(numbers), parameters_of_json(params, METADATA_FILE))


def _json(metadata: Mapping[str, str], key: str) -> Any:
    text = metadata.get(key)
    if text is None:
        raise FormatError(f"{key}: there is none in the metadata of {METADATA_FILE}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{key}: expected JSON, found {text[:40]!r}") from error


@dataclass(frozen=True, slots=True)
class PostingForm:
    """How posting lists are stored.

    size       documents of a full block
    is_fixed   whether the last block has numbers of 32 bits
    columns    to read of a token, without its positions
    positions  columns with its positions; empty if there are none
    """

    size: int
    is_fixed: bool
    columns: tuple[str, ...]
    positions: tuple[str, ...]


def posting_form(types: Mapping[str, pa.DataType], metadata: Mapping[str, str]) -> PostingForm:
    """The form of a file of posting lists. Raises `FormatError`, or `UnsupportedError` for an unknown codec."""
    size = metadata.get("posting_block_size", "128")
    if size not in map(str, _SIZES):
        raise UnsupportedError(f"posting blocks of {size[:20]} documents")
    tail = metadata.get("posting_tail_codec", "fixed32_v1")
    if tail not in _TAILS:
        raise UnsupportedError(f"posting blocks of codec {tail[:40]!r}")
    for name in (*_BLOCKS, NUM_DOCUMENTS):
        if name not in types:
            raise FormatError(f"there is no column {name}")
    positions: tuple[str, ...] = ()
    if _STREAMS[0] in types:
        codec = metadata.get("positions_codec", ""), metadata.get("positions_layout", "")
        if codec != ("packed_delta_v1", "shared_stream_v2"):
            raise UnsupportedError(f"positions of codec {codec[0][:40]!r} and layout {codec[1][:40]!r}")
        positions = _STREAMS
    elif _LISTED[0] in types:
        positions = _LISTED
    _check_types(types)
    return PostingForm(int(size), _TAILS[tail], _BLOCKS, positions)


def _check_types(types: Mapping[str, pa.DataType]) -> None:
    binaries = pa.list_(pa.large_binary())
    expected = {
        "_posting": binaries,
        NUM_DOCUMENTS: pa.uint32(),
        "_compressed_position": pa.large_binary(),
        "_position_block_offset": pa.list_(pa.uint32()),
        "_position": pa.list_(binaries),
    }
    for name, dtype in expected.items():
        if name in types and types[name] != dtype:
            raise FormatError(f"{name}: expected {dtype}, found {types[name]}")


@dataclass(frozen=True, slots=True, eq=False)
class TextPartition:
    """A partition without its posting lists.

    tokens      the transducer, or tokens in rows
    counts      u32[tokens], documents of each token, by its number
    rows        u64[n], row numbers of the documents in the space of the index
    lengths     u32[n], their numbers of tokens
    total       sum of the lengths
    form        of the posting lists
    elements    u32[n, depth], places of documents in the lists of their rows; None if documents are rows
    """

    number: int
    tokens: bytes | ListedTokens
    counts: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]
    total: int
    form: PostingForm
    elements: npt.NDArray[np.uint32] | None = None

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        tokens = len(self.tokens) if isinstance(self.tokens, bytes) else self.tokens.nbytes
        elements = 0 if self.elements is None else self.elements.nbytes
        return 1024 + tokens + self.counts.nbytes + self.rows.nbytes + self.lengths.nbytes + elements

    @property
    def num_tokens(self) -> int:
        """Rows of the file of posting lists."""
        return len(self.counts)

    def find(self, tokens: Sequence[bytes]) -> list[int | None]:
        """The numbers of tokens. Raises `FormatError`."""
        if isinstance(self.tokens, ListedTokens):
            numbers = [self.tokens.find(token) for token in tokens]
        else:
            try:
                numbers = find_tokens(self.tokens, list(tokens))
            except DamagedError as error:
                raise FormatError(f"{partition_file(self.number, TOKENS)}: {error}") from error
        return [None if number is None else self._checked(number) for number in numbers]

    def near(self, word: bytes, distance: int, prefix: int, limit: int) -> list[tuple[bytes, int]]:
        """The tokens that differ in at most `distance` characters, in the order of their bytes, and their numbers.

        prefix  characters that do not differ
        limit   number of tokens at most
        Raises `FormatError`.
        """
        text = word.decode()
        if isinstance(self.tokens, ListedTokens):
            pairs = self.tokens.near(text, distance, prefix, limit)
        else:
            try:
                pairs = near_tokens(self.tokens, text, distance, prefix, limit)
            except DamagedError as error:
                raise FormatError(f"{partition_file(self.number, TOKENS)}: {error}") from error
        return [(token, self._checked(number)) for token, number in pairs]

    def _checked(self, number: int) -> int:
        if number >= self.num_tokens:
            raise FormatError(
                f"{partition_file(self.number, TOKENS)}: a token has number {number}, "
                f"{partition_file(self.number, POSTINGS)} has {self.num_tokens} rows"
            )
        return number


def read_tokens(columns: Mapping[str, pa.Array]) -> bytes | ListedTokens:
    """The token map of the columns of a token file. Raises `FormatError`."""
    if MAP in columns:
        maps = columns[MAP]
        if len(maps) != 1 or maps.null_count:
            raise FormatError(f"{MAP}: expected one token map, found {len(maps)}")
        return bytes(maps[0].as_py())
    return ListedTokens.of_columns(*[columns[name] for name in LISTED_TOKENS])


def read_documents(rows: pa.Array, lengths: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Row numbers and lengths of documents, in memory of their own. Raises `FormatError`."""
    for array, dtype, name in ((rows, pa.uint64(), "_rowid"), (lengths, pa.uint32(), "_num_tokens")):
        if array.type != dtype or array.null_count:
            raise FormatError(f"{name}: expected {dtype} without nulls, found {array.type}")
    return (
        np.frombuffer(rows.buffers()[1] or b"", np.uint64, len(rows), rows.offset * 8),
        np.frombuffer(lengths.buffers()[1] or b"", np.uint32, len(lengths), lengths.offset * 4),
    )


def element_columns(names: Collection[str]) -> list[str]:
    """The columns of places in lists, the outermost list first."""
    return [name for depth in range(_DEPTH_MAX) if (name := f"{ELEMENT_COLUMN}{depth}") in names]


def read_elements(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint32] | None:
    """Places of documents in lists, from their columns; None without any. Raises `FormatError`."""
    for array in columns:
        if array.type != pa.uint32() or array.null_count:
            raise FormatError(f"{ELEMENT_COLUMN}: expected uint32 without nulls, found {array.type}")
    return np.column_stack([array.to_numpy() for array in columns]) if columns else None


# -- posting lists ---------------------------------------------------------------------------------------------------


def read_counts(counts: pa.Array) -> npt.NDArray[np.uint32]:
    """The numbers of documents of all tokens. Raises `FormatError`."""
    if counts.null_count:
        raise FormatError(f"{NUM_DOCUMENTS}: expected numbers, found a null")
    return counts.to_numpy()  # type: ignore[no-any-return]


def read_postings(
    partition: TextPartition, tokens: Sequence[int], columns: Sequence[pa.Array], *, has_positions: bool
) -> list[TermPostings]:
    """The posting lists of rows of a partition's file.

    tokens   numbers of the rows
    columns  of its form, then those of the positions if they are read
    Raises `FormatError`.
    """
    form = partition.form
    blocks, *positions = columns
    if any(_has_null(column) for column in columns):
        raise FormatError("a posting list is null")
    values = blocks.values
    starts = blocks.offsets.to_numpy()
    data, offsets = values.buffers()[2] or b"", _offsets(values)
    lists = []
    for number, token in enumerate(tokens):
        first, end = int(starts[number]), int(starts[number + 1])
        stream = (None, None, None) if not has_positions else _positions(form, positions, number)
        try:
            lists.append(
                TermPostings(
                    data,
                    offsets[first : end + 1],
                    int(partition.counts[token]),
                    len(partition.lengths),
                    form.size,
                    form.is_fixed,
                    *stream,
                )
            )
        except DamagedError as error:
            raise FormatError(f"the posting list of a token: {error}") from error
    return lists


def _has_null(array: pa.Array) -> bool:
    if array.null_count:
        return True
    return isinstance(array, pa.ListArray) and _has_null(array.values)


def _offsets(binaries: pa.Array) -> npt.NDArray[np.int64]:
    if not len(binaries):
        return np.zeros(1, np.int64)
    return np.frombuffer(binaries.buffers()[1], np.int64, len(binaries) + 1, binaries.offset * 8)


def _positions(
    form: PostingForm, columns: Sequence[pa.Array], number: int
) -> tuple[Any, npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
    """Bytes and offsets of the positions of one token; for positions by document also the offsets of documents."""
    if form.positions == _STREAMS:
        streams, block_offsets = columns
        stream = streams[number].as_buffer()
        lists = block_offsets.offsets.to_numpy()
        starts = block_offsets.values.to_numpy()[lists[number] : lists[number + 1]].astype(np.int64)
        return stream, np.append(starts, stream.size), None
    (listed,) = columns
    lists = listed.offsets.to_numpy()
    documents = listed.values
    of_documents = documents.offsets.to_numpy()[lists[number] : lists[number + 1] + 1].astype(np.int64)
    pieces = documents.values
    first, end = int(of_documents[0]), int(of_documents[-1])
    return pieces.buffers()[2] or b"", _offsets(pieces)[first : end + 1], of_documents - first
