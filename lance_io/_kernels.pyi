"""Type stubs of the compiled kernels: pure functions over buffers (the Rust crate in `kernels/`).

Every function releases the GIL around its work, and checks every length and offset before it uses it. It raises
`DamagedError` if the *bytes* contradict the format, `ValueError` if the *caller* passed sizes that do not fit together,
and `MemoryError` if a file's numbers require more memory than there is: memory that grows with these numbers is
reserved first (`kernels/src/sink.rs`). Integer arrays are C-contiguous little-endian buffers (numpy arrays,
`OwnedBuffer`s).

Programs are a page's encoding messages as `lance_io.codecs.tree` compiles them:

    codec     op u8, then by op
              1 FLAT              bits u32
              2 VARIABLE          offset_bits u8 (32, 64)
              3 CONSTANT          length u32, that many bytes (one value)
              4 OUT_OF_LINE       bits u8 (8, 16, 32, 64), codec of the packed words: FLAT(width)
              5 INLINE_BITPACKING bits u8
              6 FSST              2312 bytes of symbol table, codec
              8 RLE               codec of the values, codec of the run lengths
              9 BYTE_STREAM_SPLIT codec: FLAT(32 or 64)
             10 GENERAL           scheme u8 (1 LZ4, 2 ZSTD), codec
             11 FIXED_SIZE_LIST   items u32, has_validity u8, codec of the items
             12 PACKED_STRUCT     count u32, bits u32 each, codec: FLAT(sum)
             13 VARIABLE_PACKED   count u32, per child: kind u8 (0 fixed, 1 variable), bits u32 (value or length), codec
                                  (one that is VARIABLE_PACKED itself is variable)
             14 AT_MOST           bytes u64 that a value may decode to (2^31 without), codec; not nested
    layers    count u8, then per layer, innermost first: RepDefLayer u8 (1..6), plus 128 where the Arrow list has
              64-bit offsets
    miniblock flags u8 (1 wide words and sizes, 2 rep present, 4 def present), num_buffers u8, layers,
              codec of rep (if present), codec of def (if present), codec of values,
              dictionary kind u8 (0 none, 1 fixed, 2 variable with 32-bit, 3 with 64-bit offsets), bits u32 if fixed
    fullzip   bits_rep u8, bits_def u8, kind u8 (0 fixed, 1 variable), bits u32 (per value, or per length prefix),
              layers, codec of values

A decoded leaf (`Leaf`) is `(num_items, values, layers)`:

    values  by codec: fixed width [data] (1-bit values: a bitmap, LSB first); variable [offsets i32/i64, data];
            FIXED_SIZE_LIST [validity or None per list level, outermost first, then the items' buffers];
            PACKED_STRUCT one buffer per child; VARIABLE_PACKED the buffers of its children, one after the other
    layers  innermost first, one `(length, validity bitmap or None, null_count, offsets or None)` per layer of
            the page; an item layer has no offsets
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, final

T = TypeVar("T")

Buffer: TypeAlias = Any
Layer: TypeAlias = tuple[int, "OwnedBuffer | None", int, "OwnedBuffer | None"]
Dictionary: TypeAlias = tuple["OwnedBuffer | None", "OwnedBuffer"]
TextArgument: TypeAlias = Buffer | tuple[Buffer, Buffer, bool]
JsonStep: TypeAlias = tuple[str, str] | list[tuple[bool, int, bool, int]]
ListArgument: TypeAlias = Buffer | tuple[Buffer, Buffer | None] | tuple[int, bool]
Leaf: TypeAlias = tuple[int, list["OwnedBuffer | None"], list[Layer]]

__version__: str
build_profile: str

class DamagedError(ValueError):
    """The bytes contradict the format. The message names the chunk or entry if it is known."""

class TooLargeError(DamagedError):
    """A compressed frame decompresses to more than the program of its page allows (op 14)."""

class PieceTooLargeError(Exception):
    """Rows decode to more than one piece of a take may have; the caller retries with smaller pieces. Internal."""

class OwnedBuffer:
    """Read-only memory of a kernel, exposed zero-copy through the buffer protocol."""

    nbytes: int
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

# -- mini-block: metadata and planning ---------------------------------------------------------------------------

def plan_chunks(
    row_starts: Buffer,
    row_ends: Buffer | None,
    byte_offsets: Buffer,
    starts: Buffer,
    preamble: Buffer | None,
    base_bytes: int,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Plan the chunks that hold these rows, and their byte ranges in the file.

    row_starts, row_ends  i64[s], ascending, disjoint row ranges of the page; `row_ends=None` means one row each
    starts                i64[n+1], item_starts or (with `preamble`) row_starts of the chunks
    base_bytes            file offset of the chunk buffer

    Returns `(chunk_ids i64[m], range_firsts i64[g], range_starts i64[g], range_ends i64[g])`: ascending chunks, each
    once; adjacent chunks merged to one range, `range_firsts` being the index into `chunk_ids` of its first chunk.
    """

@final
class IndexedPage:
    """A page with its index, parsed once and passed to every kernel that reads from it.

    program       of the page's layout
    base_bytes    file offset of the chunk buffer
    byte_offsets  and `item_starts`, as `index_pages` returns them
    row_starts    and `preamble`, as `index_pages` returns them; None without lists (then rows are items)
    dictionary    `(offsets or None, data)`: values are indices, and results hold the items they refer to;
                  None with a dictionary in the program returns the indices
    """

    def __new__(
        cls,
        program: bytes,
        base_bytes: int,
        byte_offsets: Buffer,
        item_starts: Buffer,
        row_starts: Buffer | None,
        preamble: Buffer | None,
        dictionary: tuple[Buffer | None, Buffer] | None,
        /,
    ) -> IndexedPage: ...

def decode_miniblock(
    page: IndexedPage,
    buffer: Buffer,
    range_offsets: Buffer,
    range_firsts: Buffer,
    chunk_ids: Buffer,
    row_starts: Buffer,
    row_ends: Buffer | None,
    /,
) -> Leaf:
    """Decode the selected rows (as passed to `plan_chunks`) of a page from their fetched chunks.

    buffer, range_offsets  the fetched bytes and where each planned range starts in them
    """

@final
class PlainPage:
    """A page whose data buffer equals the values, row after row.

    base_bytes   file offset of the first row
    row_bytes    width of a row
    num_layers   number of layers of its leaf, all of them without nulls
    num_bitmaps  number of absent bitmaps (None) that precede the values in its leaf
    """

    def __new__(
        cls, base_bytes: int, row_bytes: int, num_rows: int, num_layers: int, num_bitmaps: int, /
    ) -> PlainPage: ...

@final
class ArrayPage:
    """A page of file version 2.0 whose rows can be located without a read.

    num_rows     of the page
    around       the nodes around the leaf, innermost first: s struct, l and L list with offsets of 32 and 64 bits
    base_bytes   file offset of the values, of their bytes, or of their codes
    row_bits     of values of one width: 1, or whole bytes; else 0
    present_at   file offset of the validity bitmap; None without
    num_bitmaps  number of absent bitmaps (None) that precede the values in its leaf
    ends         of strings: `(ends, adjustment, end_max, wide)`, as in `decode_ends`, of the whole page
    items        of strings with u8 codes: `(offsets i32, bytes)` of a dictionary; code k is item k - 1, 0 is null
    lists        of a page of lists: `(ends, first)`, their ends, and the position of the first item among the values

    Raises `DamagedError` for ends that do not ascend, or exceed `end_max`.
    """

    def __new__(
        cls,
        num_rows: int,
        around: bytes,
        base_bytes: int,
        row_bits: int,
        present_at: int | None,
        num_bitmaps: int,
        ends: tuple[Buffer, int, int, bool] | None,
        items: tuple[Buffer, Buffer] | None,
        lists: tuple[tuple[Buffer, int, int, bool], int] | None,
        /,
    ) -> ArrayPage: ...
    @property
    def nbytes(self) -> int:
        """Approximate memory held, in bytes."""

    def stored_ends(self) -> OwnedBuffer | None:
        """The ends that it was created with, as stored in files; None without."""

@final
class WholeArray:
    """A page of file version 2.0 of which all rows are read.

    num_rows     of the page
    around       the nodes around the leaf, as for `ArrayPage`
    row_bits     of values of one width: 1, or whole bytes; else 0
    has_bitmap   whether it has a validity bitmap
    num_bitmaps  number of absent bitmaps (None) that precede the values in its leaf
    ends         of strings: `(adjustment, end_max, wide)`, as in `decode_ends`
    items        of strings with u8 codes: `(number, ends)` of a dictionary's strings; code k is item k - 1, 0 is null
    lists        of a page of lists: `(ends, first)`, their ends, and the position of the first item among the values
    ranges       file ranges `(start, end)`, in bytes, of the ends of lists, the bitmap, and the values: these, or the
                 ends and bytes of strings, or the codes and the ends and bytes of the items
    """

    def __new__(
        cls,
        num_rows: int,
        around: bytes,
        row_bits: int,
        has_bitmap: bool,
        num_bitmaps: int,
        ends: tuple[int, int, bool] | None,
        items: tuple[int, tuple[int, int, bool]] | None,
        lists: tuple[tuple[int, int, bool], int] | None,
        ranges: list[tuple[int, int]],
        /,
    ) -> WholeArray: ...

@final
class PagesPlan:
    """`plan_chunks` for single rows of many pages, of any columns and files, in one call.

    files        `(rows, pages, columns)` of each: `pages` are those of `rows`, in order; `columns` has the number of
                 each column in the result, or None for a column that is not read, whose pages may be None; the pages of
                 a result's column have one kind of value buffers and one class
    num_columns  of the result; each must have a page
    """

    def __new__(
        cls,
        files: list[tuple[PageRows, list[IndexedPage | PlainPage | ArrayPage | None], list[int | None]]],
        num_columns: int,
        /,
    ) -> PagesPlan: ...
    def ranges(self) -> tuple[OwnedBuffer, OwnedBuffer, list[int]]:
        """`(starts, ends, bounds)` of the ranges to fetch; file i has those from `bounds[i]` to `bounds[i + 1]`."""

    def decode_file(self, file: int, buffer: Buffer, offsets: Buffer, bytes_max: int | None = None, /) -> None:
        """Decode the planned rows of one file, ahead of `decode`, which then receives None for it; on any thread.

        buffer, offsets  bytes fetched for its ranges, and i64 the start of each in the buffer
        bytes_max        as for `decode`, for all calls together

        If called for one file, it must be called for all files with ranges. Errors as of `decode`.
        """

    def decode(
        self,
        fetched: tuple[Buffer, Buffer] | list[tuple[Buffer, Buffer] | None],
        threads_max: Callable[[], int],
        layouts: Layouts | None,
        bytes_max: int | None = None,
        /,
    ) -> list[Leaf] | ArrowBatch:
        """Decode all planned rows: one leaf per column, its pages concatenated, file by file.

        fetched      fetched bytes, and i64 the start of each range in them; or both per file, None for files without
                     ranges
        threads_max  returns how many pages may be decoded in parallel; called only if the work is worth a thread
        layouts      of the columns, to receive an Arrow batch if the columns have these layouts and are small in total,
                     because keeping one column of a batch keeps the memory of all of them
        bytes_max    limit of the decoded bytes: when pages exceed it, `PieceTooLargeError` is raised and no further
                     page is started. None for no limit

        A `DamagedError` carries `(file, index of the page in the file)` as its second argument.
        """

@final
class Layouts:
    """The layouts of some columns' Arrow types, one program each, outermost type first:

    s  a struct of one member    l, L  a list with offsets of 32, 64 bits    i  a fixed-size list, and its size u32
    f  and bits u32: values of fixed width     v, V  values of variable width with offsets of 32, 64 bits
    """

    def __new__(cls, programs: list[bytes], /) -> Layouts: ...

@final
class ArrowBatch:
    """An Arrow batch that can be imported once.

    address  of its `struct ArrowArray` (Arrow's C data interface)
    """

    @property
    def address(self) -> int: ...

def index_pages(
    pages: list[tuple[Any, ...]], buffer: Buffer, offsets: Buffer, /
) -> list[tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer | None, OwnedBuffer | None, Dictionary | None]]:
    """Parse the indexes of many pages: `(byte_offsets, item_starts, row_starts or None, preamble or None, dictionary or
    None)` each.

    byte_offsets  and `item_starts`, i64[n+1] of n chunks, relative to the chunk buffer; chunk metadata words are u16
                  (u32 if `wide`) per chunk: `(bytes / 8 - 1) << 4 | log2(values)`. The last chunk holds the rest of
                  `num_items` (its log2 is 0 or exact), and the sizes add up to that of the chunk buffer
    row_starts    i64[n+1] and `preamble` u8[n], of the repetition index (u64 pairs): chunk k holds the first level of
                  rows `row_starts[k] .. row_starts[k+1]`; `preamble[k]` is 1 if it begins with the end of an earlier
                  row

    pages    `(program, base_bytes, wide, num_items, num_rows, dictionary, num_dictionary_items, sizes)` each: rows of
             pages with lists, else None; codec program of the dictionary or None; list of the sizes of all buffers
    offsets  i64, start in `buffer` of the pages' buffers, page after page and in order, without the chunks

    A `DamagedError` carries the index of the page as its second argument.
    """

def scan_pages(files: list[tuple[list[tuple[Any, ...]], Buffer, Buffer]], /) -> list[Leaf]:
    """Decode all rows of pages of some files, `(pages, buffer, offsets)` each as for `index_pages`, chunks included.

    A `DamagedError` carries the index of the page among all pages.
    """

@final
class KnownFiles:
    """Decodes all rows of files that resemble files seen before, from all of their bytes.

    shapes           per schema: the version, the schema with its tag as in the descriptor, and the number of columns of
                     the files; the message type of pages, and the alignment of buffers; columns whose single page has a
                     certain message; for each leaf that is read, its columns (those of its lists first) and known pages
    column_encoding  bytes in front of the pages of a column
    alignment        of everything beside the columns; `metadata_bytes_max` limits the bytes after the data, `rows_max`
                     the items of a page, `bytes_max` the decoded values of a file

    A known page is `(message, place, buffers, mini-block, constant)`. `place` is the range in which messages differ:
    symbols of strings, or the value; None for nowhere. Item counts of mini-blocks may always differ.

    mini-block  program before and after the symbols (all of it, and nothing, without), whether chunks are wide,
                whether there are lists, codec of the dictionary or None; None for constants
    constant    kind of the values (their bits; 0 and -1: strings with 32- and 64-bit offsets), whether all are null

    A known page of version 2.0 is `(message, buffers, places, (row_bits, has_bitmap, bitmaps), kind, around, lists)`.
    `WholeArray` explains all but these:

    places  numbers of the buffers of the bitmap, if any, and the values: ends and bytes of strings, or codes and the
            ends and bytes of their dictionary items
    kind    of the values: 0 of one width, 1 and 2 strings with 32- and 64-bit offsets, 3 codes of strings
    lists   message of the page of their ends, its number of buffers, the number of the buffer with the ends, whether
            Arrow's offsets are wide; None without
    """

    def __new__(
        cls,
        shapes: list[Any],
        column_encoding: bytes,
        metadata_bytes_max: int,
        alignment: int,
        rows_max: int,
        bytes_max: int,
        /,
    ) -> KnownFiles: ...
    def scan(self, files: list[tuple[Buffer, int]], /) -> tuple[int, list[Leaf]]:
        """Decode the longest prefix of files that are known, with one page per column and without faults.

        files  all bytes of each, and its expected number of rows

        Returns the number of these files, and their columns, file by file (empty for no files). It stops early after
        files that decode to `bytes_max` bytes.
        """

@final
class KnownBatches:
    """`KnownFiles` for files of version 0.1.

    leaves  as for `scan_batches`; of a table whose ids, from the first to the last, are `num_ids`
    """

    def __new__(
        cls,
        leaves: list[tuple[int, int, int, bool]],
        num_ids: int,
        metadata_bytes_max: int,
        rows_max: int,
        shared_bytes_max: int,
        /,
    ) -> KnownBatches: ...
    def scan(self, files: list[tuple[Buffer, int]], /) -> tuple[int, list[Leaf]]:
        """See `KnownFiles`."""

# -- full-zip ---------------------------------------------------------------------------------------------------

def fullzip_bounds(
    index: Buffer, width_bytes: int, row_starts: Buffer, row_ends: Buffer | None, data_bytes: int, /
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Byte bounds `(starts i64[s], ends i64[s])` of row ranges, from the whole repetition index of a page."""

def fullzip_pairs(
    buffer: Buffer, offsets: Buffer, lengths: Buffer, width_bytes: int, data_bytes: int, /
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """As `fullzip_bounds`, from fetched slices of the index: slice i has the entries `first ..= last` of range i."""

def decode_fullzip(
    program: bytes, buffer: Buffer, piece_offsets: Buffer, piece_lengths: Buffer, piece_rows: Buffer, /
) -> Leaf:
    """Decode whole rows. Piece i is `piece_lengths[i]` bytes at `piece_offsets[i]` with `piece_rows[i]` rows."""

def announced_entries(
    scheme: str,
    heads: tuple[int, int, int],
    unsaid_bytes: int,
    buffer: Buffer,
    offsets: Buffer,
    lengths: Buffer,
    /,
) -> OwnedBuffer:
    """Decompressed sizes that a full-zip page's compressed values announce: i64, the sum of each range of entries.

    scheme        "lz4" or "zstd"
    heads         of an entry: bytes of its control word, bits of definition in it, and bytes of its length
    unsaid_bytes  assumed for a zstd frame without a size
    offsets       start of each range, `lengths` bytes; damaged entries count as 0
    """

# -- array encodings of file version 2.0 -------------------------------------------------------------------------------
#
# Range i of the fetched bytes begins at byte `offsets[i]` and has `counts[i]` values (both i64[n]); a single count
# applies to all ranges.

def gather_bits(buffer: Buffer, offsets: Buffer, first_bits: Buffer, counts: Buffer, /) -> tuple[OwnedBuffer, int]:
    """Concatenate bits, and count those that are set; range i begins with bit `first_bits[i]` (i64) of its bytes."""

def unpack_bits(
    buffer: Buffer,
    offsets: Buffer,
    first_bits: Buffer,
    counts: Buffer,
    packed_bits: int,
    value_bits: int,
    signed: bool,
    /,
) -> OwnedBuffer:
    """Integers of `value_bits` (8, 16, 32, 64) from a stream of `packed_bits` each, LSB first."""

def unpack_groups(
    buffer: Buffer, offsets: Buffer, firsts: Buffer, counts: Buffer, packed_bits: int, value_bits: int, /
) -> OwnedBuffer:
    """Integers from FastLanes groups of 1024; range i begins with value `firsts[i]` (i64) of its first group."""

def decode_ends(
    buffer: Buffer,
    offsets: Buffer,
    firsts: Buffer,
    counts: Buffer,
    adjustment: int,
    end_max: int,
    wide: bool,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer | None, int]:
    """Decode ranges of values or lists that are stored as the end of each (u64), plus `adjustment` for nulls.

    firsts   i64[n], number of the first value of each range; unless that is 0, the range starts with the previous end
    end_max  upper limit of all ends

    Returns `(starts i64[n], ends i64[n], offsets, validity or None, null_count)`: the span of each range, and the
    offsets (i32, or i64 if `wide`; values + 1) of the values in the concatenation of all spans.
    """

def inflate(buffer: Buffer, scheme: int, bytes_max: int, /) -> OwnedBuffer:
    """Decompress a buffer (scheme 1 LZ4, 2 zstd), to `bytes_max` bytes at most."""

def decode_symbols(table: Buffer, offsets: Buffer, codes: Buffer, wide: bool, /) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Decode FSST values to `(offsets, bytes)`; offsets (i32, or i64 if `wide`) ascend from 0 to the end of `codes`."""

def whole_ranges(pages: list[WholeArray], /) -> tuple[OwnedBuffer, OwnedBuffer]:
    """`(starts, ends)`, i64, of the ranges of all these pages, page after page."""

def scan_arrays(files: list[tuple[list[WholeArray], Buffer, Buffer]], /) -> list[Leaf]:
    """Decode all rows of pages of some files, `(pages, buffer, offsets)` each.

    `offsets`, i64, has the start in `buffer` of each range of the pages, page after page.

    A `DamagedError` carries the index of the page among all pages.
    """

def look_up_codes(
    codes: Buffer, offsets: Buffer, data: Buffer, wide: bool, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer | None, int]:
    """Look up strings by u8 codes: code k is item k - 1, code 0 is null.

    offsets, data  of the items (i32, or i64 if `wide`)

    Returns `(offsets, bytes, validity or None, null_count)`. Raises DamagedError for codes without an item.
    """

# -- levels, dictionaries, constants ---------------------------------------------------------------------------------

def decode_levels(codec: bytes, buffer: Buffer, num_values: int, /) -> OwnedBuffer:
    """Decode a block-compressed vector of levels, as u16[num_values]."""

def distinct_rows(rows: Buffer, /) -> tuple[OwnedBuffer, OwnedBuffer] | None:
    """The distinct rows (i64), ascending, and for each row its i64 index among them.

    None if the rows already ascend without duplicates.
    """

def float_function(name: str, values: Buffer, width: int, /) -> OwnedBuffer:
    """Apply a function of one float to each value, with the C library's result on every processor.

    name    sin cos tan cot asin acos atan sinh cosh tanh asinh acosh atanh sqrt cbrt exp ln log log2 log10 degrees
            radians signum; `log` is to the base 10, computed as a quotient; signum of 0.0 and -0.0 is 0.0
    values  f32[n] or f64[n]
    width   bytes of a value, 4 or 8

    Outside its domain the NaN is positive for asin, acos and log10, for 64 bits also for ln, log and log2; for others
    it is negative.
    """

def split_rows(
    rows: Buffer, row_starts: Buffer, ends: list[int], /
) -> tuple[list[int], list[int], list[int], OwnedBuffer]:
    """Find the pages of each column that hold the rows: `(pages, counts, page_ends, relative)`.

    rows        i64[r], ascending, all of them within each column
    row_starts  i64, column by column: start row of each page, then the end of the last
    ends        end of each column's part of `row_starts`

    pages      numbers of the pages that hold some rows, ascending within a column, column by column
    counts     number of rows in each of them
    page_ends  end of each column's part of `pages`
    relative   i64[columns, r], the rows relative to the start of their page
    """

@final
class PageRows:
    """The result of `split_rows`, held for a `PagesPlan`; same parameters.

    pages  numbers of the pages that hold some rows, counted over the pages of all columns
    """

    def __new__(cls, rows: Buffer, row_starts: Buffer, ends: list[int], /) -> PageRows: ...
    @property
    def pages(self) -> list[int]: ...
    def of_column(self, number: int, /) -> tuple[int, list[int], list[int], OwnedBuffer]:
        """`(first, numbers, counts, rows)` of a column: start of its part of `pages`, the rest as in `split_rows`."""

def unravel_rows(
    rep: Buffer | None,
    def_: Buffer | None,
    layers: bytes,
    row_starts: Buffer,
    row_ends: Buffer | None,
    num_rows: int,
    /,
) -> tuple[int, list[Layer], OwnedBuffer | None]:
    """Select rows from a page's levels (u16) and rebuild validity and offsets of every layer.

    num_rows  rows of the page (checked against the levels). Returns `(num_items, layers, item_ids)`, where `item_ids`
    are the i64 page-relative numbers of the selected visible items, or None without repetition (items are rows).
    """

def decode_dictionary(codec: bytes, buffer: Buffer, num_items: int, /) -> list[OwnedBuffer]:
    """Decode a block-compressed dictionary: `[data]` or `[offsets, data]` (offsets start at 0)."""

# -- writing: levels ------------------------------------------------------------------------------------------------

def shred(
    chunks: list[tuple[int, int, list[tuple[Any, ...]], list[tuple[Any, ...]]]], /
) -> tuple[int, int, OwnedBuffer | None, OwnedBuffer | None, bytes, tuple[int, int], list[OwnedBuffer | None] | None]:
    """Shred rows of nested arrays into levels and the values of visible items.

    chunks   `(start, num_rows, nodes, streams)` each; rows of the outermost node's array
    nodes    outermost first, the leaf last: `(kind u8, length, validity or None, bit_offset, offsets or None,
             list_size)`. Kinds: 0 item (struct or leaf), 1 list with i32 and 2 with i64 offsets, 3 fixed-size list of
             structs, 4 leaf of the null type, 5 struct that may be null (around lists its layer is always nullable).
             Slot i has bit `bit_offset + i` and items `offsets[i]:offsets[i + 1]`
    streams  buffers of the leaf: `(kind u8, unit_bytes, units_per_slot, first_unit, data or None, bytes or None)`.
             Kinds: 0 fixed width, 1 bits, 2 offsets i32 (in `data`) with `bytes`, 3 the same with i64, 4 validity of
             items within slots, None where all are valid. Slot i begins at unit `first_unit + i * units_per_slot`

    Returns `(num_slots, num_items, rep, def, layers, (chunk, first), values)`: page rows, visible items, levels u16
    (None where absent), RepDefLayer numbers innermost first, and the streams of the visible items as `[data]`,
    `[offsets, bytes]` (from 0) or, for validity, `[bitmap or None]` each. Null items of fixed width repeat the previous
    item, the first ones the first valid one; bits are 0 and texts empty; items within null slots are valid.
    `values` is None if they equal slots `first .. first + num_items` of that chunk's leaf and none is null.

    Raises `NotImplementedError` for fixed-size lists of structs inside lists.
    """

def encode_fullzip(
    program: bytes,
    sources: list[tuple[Buffer, int]],
    num_values: int,
    rep: Buffer | None,
    def_: Buffer | None,
    level: int | None,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Encode a page in the form that `decode_fullzip` reads.

    program   of the page; FSST values are passed as codes, GENERAL values are compressed one by one
    sources   buffers of the visible items in the order of the codec, each with the bit at which its first value begins:
              as `encode_miniblock` takes them, the members of a VARIABLE_PACKED struct one after the other
    level     of zstd; None is its own default

    Returns the entries, and the byte offsets of rows in them, including the end: 1, 2, 4 or 8 bytes each, as few as
    possible.
    """

def encode_levels(levels: Buffer, bounds: Buffer, with_rle: bool, /) -> tuple[int, int, OwnedBuffer, OwnedBuffer]:
    """Compress blocks of levels with the codec that minimises their total size.

    levels    u16[n]
    bounds    i64[blocks + 1], from 0 to n: block i is `levels[bounds[i]:bounds[i + 1]]`
    with_rle  whether runs are allowed as a codec

    Returns `(op, width, data, offsets i64[blocks + 1])`: the codec's number in programs (1, 4, 5 or 8), the packed
    width for OUT_OF_LINE (else 16), and the start of each block in `data`.
    """

# -- writing: mini-block ---------------------------------------------------------------------------------------------
#
# Values are passed as a list of `(buffer, bit)`: in the order of a codec's shape ("A decoded leaf" above, but a single
# buffer of rows for PACKED_STRUCT), `bit` being the start of a bitmap. FSST takes values that are already coded.

def measure_words(data: Buffer, bits: int, num_values: int, /) -> tuple[int, int, bool]:
    """Statistics of 8, 16, 32 or 64-bit values: `(num_runs, packed_bytes, is_constant)`.

    num_runs      runs of equal values, none longer than 255 or over 4096 values; approximate if few are equal
    packed_bytes  groups of 1024, each packed to the width of its widest value, with a word for the width
    """

def plan_miniblock(
    codec: bytes,
    buffers: list[tuple[Buffer, int]],
    num_values: int,
    target_bytes: int,
    definition: Buffer | None,
    max_visible: int,
    num_levels: int,
    levels_max: int,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer] | None:
    """Cut a page into chunks: `(item_bounds i64[n+1], level_bounds i64[n+1])`.

    target_bytes  target size of chunks of variable-width values
    definition    u16[num_levels]; levels above `max_visible` own no value. Those after the last value of a chunk
                  begin the next one, except in the last chunk
    levels_max    of one chunk; returns None if there are more between two values
    """

def encode_miniblock(
    codec: bytes,
    wide: bool,
    buffers: list[tuple[Buffer, int]],
    item_bounds: Buffer,
    target_bytes: int,
    level: int | None,
    levels: list[tuple[Buffer, Buffer]],
    level_bounds: Buffer,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer, int, int, int] | None:
    """Encode the chunks that `plan_miniblock` planned: `(words, chunks, num_buffers, plain_bytes, coded_bytes)`.

    wide    chunk words and value sizes are u32 (file version 2.2)
    level   of zstd; None is its default
    levels  repetition, then definition: `(blocks, offsets i64[n+1])`, one compressed block per chunk

    `plain_bytes` and `coded_bytes` are the sizes of all first value buffers before and after general compression, 0
    without. Returns None if a chunk is larger than its word can encode.
    """

@final
class PageRules:
    """Thresholds of the page writer, for `encode_small_pages`.

    wide_chunks            chunk words and value sizes are u32, and there are constant pages (file version 2.2)
    chunk_target_bytes     target size of chunks of strings
    chunk_levels_max       levels of a chunk, at most
    large_value_bytes      values of this size get another layout
    coded_value_bytes_min  texts get a symbol table if the longest has at least this size,
    coded_page_bytes_min   and the page at least this size
    dictionary_*           minimum number of values, maximum number of items, minimum number of values per item, and
                           maximum share of the plain size
    index_bits             of a dictionary's indices
    """

    def __new__(
        cls,
        *,
        wide_chunks: bool,
        chunk_target_bytes: int,
        chunk_levels_max: int,
        large_value_bytes: int,
        coded_value_bytes_min: int,
        coded_page_bytes_min: int,
        dictionary_values_min: int,
        dictionary_items_max: int,
        dictionary_divisor: int,
        dictionary_size_ratio: float,
        index_bits: int,
    ) -> PageRules: ...

@final
class SmallPages:
    """Pages of neighbouring columns and their relative positions, from `encode_small_pages`.

    data   the chunks of all pages, each padded to a multiple of 64 bytes
    index  their chunk words, padded in the same way
    """

    data: OwnedBuffer
    index: OwnedBuffer

    def __len__(self) -> int: ...
    def entries(self, page_type: str, data_at: int, index_at: int, /) -> list[bytes]:
        """The `encode_page_entry` of each page, with first row 0.

        page_type         message type of layouts
        data_at, index_at file offsets of `data` and `index`
        """

def encode_small_pages(
    columns: list[tuple[int, int, int, bool, list[Buffer | None]]], rules: PageRules, /
) -> list[tuple[int, SmallPages]]:
    """Encode columns without nesting or options: `(number of the first column, pages)` per run of neighbours.

    columns  `(kind, offset, length, has_nulls, Arrow buffers)`; kinds are 0 booleans, 1, 2, 4 and 8 words of that many
             bytes, 16 strings, 17 those with 64-bit offsets, 18 and 19 binaries

    The caller encodes the columns that no run includes: those that need another page, and those with short buffers.
    """

def repetition_index(repetition: Buffer, level_bounds: Buffer, max_rep: int, /) -> OwnedBuffer:
    """Two u64 per chunk: rows that end in it, levels of the row that continues after it."""

def encode_fsst(
    offsets: Buffer, data: Buffer, wide: bool, num_values: int, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Train a symbol table on values and code them with it: `(table, offsets, codes)`.

    offsets  i32 or (if `wide`) i64 [num_values + 1], from any start; the result's are as wide and start at 0
    table    2312 bytes, as pages store it
    """

def distinct_variable(
    offsets: Buffer, data: Buffer, wide: bool, num_values: int, items_max: int, bytes_max: int, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer] | None:
    """The distinct values, in order of appearance: `(indices i32[num_values], offsets, bytes)`.

    None if there are more than `items_max`, or more than `bytes_max` bytes of them and their offsets; a sample may
    decide that early.
    """

def distinct_fixed(
    data: Buffer, bits: int, num_values: int, items_max: int, bytes_max: int, /
) -> tuple[OwnedBuffer, OwnedBuffer] | None:
    """As `distinct_variable`, for values of 64 or 128 bits: `(indices, values)`."""

def pack_block(data: Buffer, bits: int, num_values: int, /) -> tuple[int, OwnedBuffer]:
    """Pack values of 32 or 64 bits to the width of the widest: `(width, block)`.

    InlineBitpacking up to 1024 values, else OutOfLineBitpacking.
    """

def compress_block(data: Buffer, scheme: int, level: int | None, /) -> OwnedBuffer:
    """Compress a buffer, prefixed with its size (scheme 1 LZ4, 2 zstd)."""

def pack_rows(members: list[tuple[Buffer, int]], num_rows: int, /) -> OwnedBuffer:
    """Assemble rows of packed structs: members, passed as `(values, width in bytes)`, back to back."""

# -- column metadata ---------------------------------------------------------------------------------------------------

def column_pages(
    message: Buffer, column_encoding: bytes, page_type: str, data_end: int, alignment: int, rows_max: int, /
) -> tuple[OwnedBuffer, list[tuple[tuple[int, ...], tuple[int, ...], int, int, str, bytes]]] | None:
    """Parse a `ColumnMetadata` message: `(row_starts i64[n+1], pages)`, the fields of a `PageInfo` for each page.

    column_encoding  bytes that the message must begin with
    page_type        of the layouts, without the slash of its URL
    data_end         end of the part of the file that contains buffers
    alignment        of the offsets of buffers, in bytes

    None for a message in an unusual form, and if a check fails: the caller falls back to a general parser, which
    reports faults.
    """

def file_columns(
    messages: Buffer,
    columns_at: int,
    column_table_at: int,
    columns: list[int],
    column_encoding: bytes,
    page_type: str,
    alignment: int,
    rows_max: int,
    /,
) -> list[tuple[bytes | None, int, list[tuple[tuple[int, ...], tuple[int, ...], int, int, str, bytes]]] | None]:
    """`column_pages` for some columns of a file: `(row_starts i64[n+1], rows of the column, pages)` each.

    `row_starts` is None for a column of one page.

    messages  the file from `columns_at` on, at least to the end of the column table

    None for a column as in `column_pages`, and for one that the table lacks.
    """

def file_ending(
    tail: Buffer, start: int, file_bytes: int, metadata_bytes_max: int, alignment: int, /
) -> tuple[tuple[int, int, int, int, int], tuple[int, int], bytes, int, bytes] | None:
    """Parse the end of a data file: `((columns_at, column_table_at, globals_table_at, num_globals, num_columns),
    (major, minor), descriptor without its rows, rows, messages)`.

    tail       the file from `start` to its end, including all metadata
    alignment  of the global buffers, in bytes
    messages   the part of it between `columns_at` and the footer

    None for an unusual form, if a check fails, and if the metadata begin before `start`: the caller falls back to the
    general parsers, which report faults.
    """

def survey_flat_schema(schema: bytes, fields_max: int, /) -> tuple[bytes, set[str], list[int], bytes] | None:
    """Survey the fields of a `Schema` message: `(places, types, marked, metadata)`.

    places    of each field u32[4]: start and end of its message in `schema`, and of its name (0, 0 for an empty one)
    types     the distinct logical types
    marked    numbers of the fields that have metadata
    metadata  a `Schema` message of the schema's metadata alone

    Fields must be top-level, with different ids of 0 or more, different names, and no NUL character in names, types and
    metadata keys. None for a schema with other fields, or more than `fields_max`, and for a message in an unusual form:
    the caller falls back to a general parser.
    """

def find_flat_field(schema: bytes, places: bytes, name: bytes, /) -> int | None:
    """Number of the field with this name, in UTF-8; `places` come from `survey_flat_schema`."""

def flat_field_names(schema: bytes, places: bytes, /) -> list[str]:
    """Names of all fields; `places` come from `survey_flat_schema`."""

def split_manifest(manifest: Buffer, fields_min: int, /) -> tuple[bytes, bytes] | None:
    """Split a `Manifest` message in two: its fields and their metadata, as a `Schema` message, and the rest.

    None if it does not begin with at least `fields_min` fields, or has an unusual form.
    """

def survey_fragments(
    manifest: Buffer, /
) -> tuple[list[int], list[int], list[tuple[int, int]], set[tuple[int, int]]] | None:
    """Survey the fragments of a `Manifest` message: `(ids, physical rows, deleted rows, versions)`.

    deleted rows  `(index, number)` for each fragment that has a deletion file
    versions      the distinct `(major, minor)` of data files

    None for a message in an unusual form: the caller falls back to a general parser.
    """

def part_manifest(manifest: Buffer, /) -> tuple[bytes, bytes, bytes, int | None] | None:
    """Split a `Manifest` message into its fragments and the rest: `(fragments, bounds, rest, without row ids)`.

    fragments        the fragment fields, as a `Manifest` message
    bounds           start and end of each `DataFragment` message in it, u32 each
    rest             the other fields
    without row ids  index of the first fragment that has row ids neither in its message nor in a data file

    None for a message in an unusual form: the caller falls back to a general parser.
    """

def sum_manifest(manifest: Buffer, /) -> tuple[int, int, int, list[int]] | None:
    """Summarise a `Manifest` message for a list of versions: `(version, seconds, nanoseconds, sums)`.

    sums  fragments, data files, their bytes, deletion files, rows, deleted rows, remaining rows; a missing number
          counts as 0

    None for a message in an unusual form, or with impossible ids and counts.
    """

def find_manifest_time(end: Buffer, /) -> tuple[int, int] | None:
    """Find the time of a `Manifest` message of which only the end is available: `(seconds, nanoseconds)`.

    None if the end does not contain it, if it is ambiguous, and for a message in an unusual form.
    """

def piece_ends(message: Buffer, piece_bytes: int, /) -> list[int] | None:
    """Ends of pieces of a message, at field borders, of about `piece_bytes` each; the last is its end.

    None for a damaged message, and for one with groups.
    """

def split_items(layout: bytes, /) -> tuple[bytes, int, bytes] | None:
    """Split the `PageLayout` message of a mini-block page at its number of items: bytes before, number, bytes after.

    None for any other page, and for a message in an unusual form.
    """

def split_descriptor(descriptor: Buffer, /) -> tuple[bytes, int] | None:
    """Split a `FileDescriptor` message of the usual form: the bytes before its number of rows, and that number."""

# -- pages of file version 0.1 -----------------------------------------------------------------------------------------

def join_bits(buffer: Buffer, starts: Buffer, counts: Buffer, /) -> OwnedBuffer:
    """Concatenate runs of bits: run i is `counts[i]` bits from bit `starts[i]` on (i64, lowest bit first)."""

def join_lists(
    buffer: Buffer, places: Buffer, counts: Buffer, items: Buffer, wide: bool, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Join runs of lists into the offsets of one array: `(offsets from 0 on, firsts i64[runs], ends i64[runs])`.

    places  start of the `counts[i] + 1` offsets of run i in `buffer`, i64
    items   number of items in the batch of each run, i64: upper limit of its offsets
    wide    offsets are i64, not i32, in input and result

    The items of run i are `firsts[i]` to `ends[i]` of its batch. A `DamagedError` carries the run as second argument.
    """

def batches_ending(
    tail: Buffer, start: int, file_bytes: int, num_ids: int, metadata_bytes_max: int, /
) -> tuple[bytes, int, bytes | None, bytes] | None:
    """Parse the end of a file of version 0.1, if `tail`, which begins at `start`, has it in the usual form:
    `(rows before each batch as i64[batches + 1], position of the page table, the metadata message if it has statistics,
    the page table of `num_ids` ids)`.
    """

def scan_batches(
    files: list[tuple[Buffer, int, int, Buffer, Buffer, list[tuple[int, int, int, bool]]]],
    rows_max: int,
    shared_bytes_max: int,
    /,
) -> list[list[tuple[int, list[OwnedBuffer], OwnedBuffer | None, int]] | None]:
    """Decode all rows of columns of files of version 0.1, from all of their bytes.

    A file is `(buffer, place, file_bytes, rows before each batch, page table, columns)`; its bytes begin at `place` of
    the buffer. A column is `(row of the page table, bits of a value, kind, nullable)`; kinds are 0 for one width, 1 for
    strings and 2 for those with wide offsets. All strings of a file may have up to `shared_bytes_max` times its bytes.

    Returns per file, for each column, `(rows, buffers, validity or None, nulls)`; None for a file with a fault.
    """

def join_strings(
    tables: Buffer,
    places: Buffer,
    counts: Buffer,
    buffer: Buffer,
    data_places: Buffer,
    starts: Buffer,
    ends: Buffer,
    wide: bool,
    nullable: bool,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer | None, int]:
    """Join runs of variable-width values into one array: `(offsets from 0 on, bytes, validity or None, nulls)`.

    places       start of the `counts[i] + 1` offsets of run i in `tables`, i64: they are file positions
    data_places  start in `buffer` of the bytes `starts[i]` to `ends[i]` of the file, which contain its values
    wide         offsets of the result are i64, not i32
    nullable     values without bytes are null

    A `DamagedError` carries the run as second argument.
    """

# -- bytes ----------------------------------------------------------------------------------------------------------

def gather_ranges(buffer: Buffer, offsets: Buffer, lengths: Buffer, /) -> OwnedBuffer:
    """Concatenate slices of a buffer; a single length (i64[1]) applies to all offsets."""

def scan_product_codes(
    codebook: Buffer,
    float_bytes: int,
    shape: tuple[int, int, int],
    is_dot: bool,
    targets: Buffer,
    pieces: Sequence[Buffer],
    pairs: Buffer,
    out: Buffer,
    /,
) -> None:
    """Distances of product codes, into `out` (f32).

    codebook  [parts, words, width], floats of `float_bytes` (4 or 8); `shape` has these three; 256 words, or 16
    is_dot    distances are 1 - dot product, otherwise squared l2
    targets   [targets, parts * width], floats of the same size: queries, or their residuals
    pieces    codes byte by byte, each byte of all rows together; of 16 words two in a byte, the low half first
    pairs     i64[n, 3]: a piece, a target, and the first row of their distances in `out`; those of a piece together
    """

def scan_scalar_codes(
    queries: Buffer,
    dim: int,
    is_dot: bool,
    scale: float,
    bases: Buffer,
    pieces: Sequence[Buffer],
    pairs: Buffer,
    out: Buffer,
    /,
) -> None:
    """`base + scale * sum` of each row, into `out` (f32).

    queries  u8[queries, dim]: squared differences are summed; if `is_dot` f32[queries, dim]: products
    bases    f64[queries]
    pieces   u8[rows, dim]
    pairs    i64[n, 3]: a piece, a query, and the first row of their distances in `out`; those of a piece together
    """

def scan_vectors(
    metric: str,
    float_bytes: int,
    dim: int,
    queries: Buffer,
    pieces: Sequence[Buffer],
    pairs: Buffer,
    out: Buffer,
    /,
) -> None:
    """Exact distances of vectors by "l2", "cosine" or "dot", into `out` (f32).

    queries  f64[queries, dim]
    pieces   [rows, dim], floats of `float_bytes` (4 or 8)
    pairs    i64[n, 3]: a piece, a query, and the first row of their distances in `out`; those of a piece together
    """

def sum_hashes(data: Buffer, width: int, first: int, num_values: int, /) -> int:
    """The sum, modulo 2^64, of the hashes of `num_values` values of `width` bytes each, from value `first` on."""

def sum_hashes_variable(data: Buffer, offsets: Buffer, is_wide: bool, first: int, num_values: int, /) -> int:
    """As `sum_hashes`, of `data[offsets[i]:offsets[i + 1]]`; offsets are i64 if `is_wide`, else i32."""

def set_bits(bits: Buffer, first_bit: int, num_bits: int, /) -> OwnedBuffer:
    """Indexes of the set bits of a mask, i64 ascending: lowest bit of a byte first, `first_bit` counts as 0."""

def hash_fixed(
    seed: tuple[int, int], before: Buffer | None, values: Buffer, width: int, num_values: int, /
) -> OwnedBuffer:
    """Keyed 128-bit hashes (SipHash-1-3, seed of two u64) of values of `width` bytes: 16 bytes each.

    before  hashes (16 bytes each) that precede the values in the hash, None for none
    """

def hash_variable(
    seed: tuple[int, int], before: Buffer | None, raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, /
) -> OwnedBuffer:
    """As `hash_fixed`, for slices of `data`, by Arrow's n + 1 offsets, of 64 bits if `wide`."""

@final
class Analyzer:
    """Makes tokens of texts: a base tokenizer, then filters in this order, each only if it is asked for.

    base                simple, whitespace, raw, ngram, icu, icu/split or code
    is_json             texts are stored JSON documents: a token is a path, a type, and a token or value
    split_identifiers   tokens of code are split at case and, with `split_on_numerics`, at digits;
                        `preserve_original` keeps the whole token before its parts
    length_limit_bytes  tokens of this many bytes and longer are dropped; None keeps all
    lower_case, stem    of the language
    stop_words          the words of `custom_stop_words`, None for those of the language, are dropped
    ascii_folding       letters lose their accents
    ngram_chars         characters of the shortest and the longest n-gram; `prefix_only` from the start of a text
    index_operators     operators of code are tokens

    Raises `ValueError` for a name that it does not know.
    """

    def __new__(
        cls,
        base: str,
        *,
        is_json: bool,
        language: str,
        length_limit_bytes: int | None,
        lower_case: bool,
        stem: bool,
        stop_words: bool,
        custom_stop_words: list[str] | None,
        ascii_folding: bool,
        ngram_chars: tuple[int, int],
        prefix_only: bool,
        split_identifiers: bool,
        split_on_numerics: bool,
        preserve_original: bool,
        index_operators: bool,
    ) -> Analyzer: ...
    def tokenize(
        self, num_rows: int, texts: TextArgument, present: Buffer | None, bytes_max: int, /
    ) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer]:
        """The tokens of texts: first token of each text (i32[num_rows + 1]), offsets (i32) and bytes of the tokens,
        and positions (i32). Rows whose flag in `present` is 0 have none.

        Raises `ValueError` if the tokens take more than `bytes_max`.
        """

@final
class TermLists:
    """Maps from tokens to the documents that have them, which grow while texts are added; each worker has one.

    seed             of the process, against tokens that are chosen to collide
    with_positions   keep positions
    keep_empty       texts without tokens are documents, too
    """

    def __new__(cls, seed: int, num_workers: int, *, with_positions: bool, keep_empty: bool) -> TermLists: ...
    def add(
        self, analyzer: Analyzer, num_rows: int, texts: TextArgument, present: Buffer | None, row_numbers: Buffer, /
    ) -> None:
        """Add texts with their rows (i64), but those whose flag in `present` is 0. Each worker takes a share."""

    @property
    def num_documents(self) -> list[int]:
        """Of each worker."""

    @property
    def nbytes(self) -> int:
        """Memory of all maps."""

    def documents(self, worker: int, /) -> tuple[OwnedBuffer, OwnedBuffer]:
        """Rows (i64) and numbers of tokens (i32) of all documents of a worker, which leave the map."""

    def take(
        self, worker: int, bytes_max: int, /
    ) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer] | None:
        """The next tokens of a worker in order, up to about `bytes_max`, and None after the last: offsets (i64) and
        bytes of the tokens, numbers of documents (i32), offsets and bytes of the lists of documents, and of positions.
        They leave the map, which is empty at the end."""

@final
class TermMerger:
    """Merges runs of sorted tokens (`TermLists.take`) to the rows of a partition (spec: indices, 7.2 and 7.3).

    lengths          number of tokens of each document (i32), run after run
    run_lengths      number of documents of each run
    block_size       128 or 256
    is_first_format  whether short blocks have numbers of 32 bits, and positions stand by document
    """

    def __new__(
        cls,
        lengths: Buffer,
        run_lengths: list[int],
        *,
        block_size: int,
        with_positions: bool,
        is_first_format: bool,
    ) -> TermMerger: ...
    def feed(self, run: int, columns: Sequence[Buffer] | None, /) -> None:
        """The next tokens of a run, as `TermLists.take` returns them; None at its end."""

    def merge(self, bytes_max: int, /) -> tuple[int, list[OwnedBuffer], int | None]:
        """The next rows, up to about `bytes_max`: their number, their buffers, and a run that has to be fed before
        `merge` goes on. There are no more rows if that is None and the number is 0.

        Buffers: of the blocks list offsets (i32), offsets (i64) and bytes; largest scores (f32); numbers of documents
        (i32); of the impacts as of the blocks; offsets (i64) and bytes of positions; list offsets (i32) and starts
        (u32) of their blocks; in the first format of positions instead list offsets of tokens (i32) and documents
        (i32), offsets (i64) and bytes of their pieces.
        """

    def token_map(self) -> tuple[OwnedBuffer, int, int]:
        """After all rows: the bytes of the map from tokens to their rows, the number of tokens, and their bytes."""

@final
class KeyTable:
    """Rows by their keys, which may repeat.

    seed   of the process, against keys that are chosen to collide
    keys   back to back, `width` bytes each: 8 for numbers, 16 for hashes of `hash_fixed` and `hash_variable`
    Takes at most 28 bytes a row in addition to the key.
    """

    def __new__(cls, seed: tuple[int, int], keys: Buffer, width: int, /) -> KeyTable: ...
    @property
    def has_repeats(self) -> bool:
        """Whether several rows share a key."""

    def find(self, keys: Buffer, threads_max: int, /) -> tuple[OwnedBuffer, OwnedBuffer]:
        """Indexes of the keys in the table, i64 ascending, and the first row of each, i64; many keys use threads."""

    def groups(self) -> OwnedBuffer:
        """i64 for each row: the first row with its key."""

    def rows_of(self, firsts: Buffer, /) -> tuple[OwnedBuffer, OwnedBuffer]:
        """All rows with the keys of `firsts` (i64, first rows of their keys): indexes ascending, rows ascending."""

@final
class SliceFilter:
    """Excludes most slices that are not in a set of slices, in a fraction of the time of hashing them.

    The slices are passed as for `hash_variable`.
    """

    def __new__(
        cls, seed: tuple[int, int], raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, /
    ) -> SliceFilter: ...
    def passing(
        self, raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, threads_max: int, /
    ) -> OwnedBuffer:
        """Indexes, i64 ascending, of the slices that may be in the set: all that are, and few others."""

@final
class TermPostings:
    """The documents of one token in one partition, and perhaps its positions in them.

    Block i is `data[offsets[i]:offsets[i + 1]]` (offsets i64[blocks + 1]). Everything is decoded once, to check it.

    num_docs               documents that have the token
    num_docs_of_partition  documents of the partition
    size                   documents of a full block: 128 or 256
    is_fixed               whether the last block has numbers of 32 bits, not varints
    positions              streams of all blocks, or pieces of all documents; None if they are not read
    position_offsets       i64, of the streams or pieces
    position_documents     i64[num_docs + 1], the first piece of each document, and the end; None for streams

    Raises `DamagedError`.
    """

    def __new__(
        cls,
        data: Buffer,
        offsets: Buffer,
        num_docs: int,
        num_docs_of_partition: int,
        size: int,
        is_fixed: bool,
        positions: Buffer | None,
        position_offsets: Buffer | None,
        position_documents: Buffer | None,
        /,
    ) -> TermPostings: ...
    def documents(self) -> tuple[OwnedBuffer, OwnedBuffer]:
        """The documents, i64 ascending, and how often each has the token, u32. Raises `DamagedError`."""

    @property
    def num_docs(self) -> int:
        """Documents that have the token."""

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""

def match_terms(
    parts: list[tuple[list[TermPostings], list[float], list[int] | None, Buffer, bool, Buffer | None]],
    average: float,
    most: int | None,
    threshold: float,
    phrase: tuple[list[tuple[int, int]], int] | None,
    /,
) -> tuple[list[int], OwnedBuffer, OwnedBuffer]:
    """The documents of partitions with some tokens, and their BM25 scores.

    parts       of each partition:
                    posting lists of its tokens
                    factors of the tokens: inverse document frequency
                    groups: a document needs a token of each group, numbered from 0; None: one token is enough
                    lengths of all documents, u32
                    whether lengths are rounded down to four significant bits
                    which documents count, u8; None for all
    average     length
    most        documents with the highest scores that are wanted, of all partitions together; the others are not scored
                where bounds say so
    threshold   a document has to exceed this score, if `most` is given
    phrase      tokens by number with their positions, and how much later each next may stand

    Returns where the documents of each partition end, the documents, i64 ascending in each partition, and scores, f32.
    Raises `DamagedError`, and `ValueError` for arguments that do not fit together.
    """

def find_tokens(token_map: Buffer, tokens: list[bytes], /) -> list[int | None]:
    """Numbers of tokens by a transducer of crate `fst`; None for a token that it lacks. Raises `DamagedError`."""

def near_tokens(token_map: Buffer, word: str, distance: int, prefix: int, limit: int, /) -> list[tuple[bytes, int]]:
    """The first `limit` tokens, by their bytes, with the first `prefix` characters of a word, and their numbers.

    At most `distance` characters differ: inserted, removed or replaced. Raises `DamagedError`.
    """

def add_to_bloom(bitmap: Buffer, raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, /) -> None:
    """Add values, passed as for `hash_variable`, to a split block Bloom filter of Parquet's form, in place.

    bitmap  writable; blocks of 32 bytes
    """

def json_texts(
    data: Buffer, offsets: Buffer, present: Buffer | None, depth_max: int, /
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Convert stored JSON values to text, `(offsets i32[n + 1], UTF-8)`; the layout is in `lance_io.levels.jsonb`.

    Value i is `data[offsets[i]:offsets[i + 1]]` (offsets i64[n + 1]); rows whose byte in `present` (u8[n]) is 0 have
    no text. Raises `NotImplementedError` for extensions, deeper nesting than `depth_max`, and text beyond 2 GiB.
    """

def encode_jsonb(data: Buffer, offsets: Buffer, depth_max: int, /) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Convert JSON texts to their stored form, `(offsets i64[n + 1], bytes)`: the reverse of `json_texts`.

    Text i is `data[offsets[i]:offsets[i + 1]]` (offsets i64[n + 1]). Raises `ValueError` with row and position for
    invalid JSON, duplicate keys in an object, deeper nesting than `depth_max`, and values of 256 MiB.
    """

# -- functions of filters ------------------------------------------------------------------------------------------
#
# A column of texts or byte strings (`TextArgument`) is `(data, offsets, is_wide)`, with n + 1 offsets (i32, i64 if
# wide) for n rows; a column of integers is its i64s. A column of one row is a literal, which applies to every row.
# `present` (u8[n]) is 0 in rows that are not computed, because an argument is null; None if all are computed. All
# functions raise `ValueError` for a row without a valid result, and `KeyboardInterrupt` if the user interrupts.

def change_texts(
    function: str,
    num_rows: int,
    arguments: list[TextArgument],
    present: Buffer | None,
    wide: bool,
    bytes_max: int,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Compute a text per row, `(offsets, data)`; the texts must fit wide or narrow offsets.

    bytes_max  of one text, because `repeat` and `pad_left` could request any size

    Positions count characters from 1. By `function`, with its arguments:

    left, right             text, count         substring          text, position, [count]
    pad_left, pad_right     text, width, fill   overlay            text, new, position, [count]
    trim, trim_left, trim_right                 text, characters
    repeat                  text, times         replace            text, old, new
    translate               text, old characters, new ones
    split_part              text, separator, number                substring_index    text, separator, count
    capitalize              text                character, hexadecimal                integer
    to_hex, to_base64       bytes               from_hex, from_base64                 digits; gives bytes
    format_time             seconds since 1970, pattern of `%Y %y %m %d %j %H %M %S %%`; of years 0 to 9999
    """

def measure_texts(
    function: str, num_rows: int, arguments: list[TextArgument], present: Buffer | None, /
) -> OwnedBuffer:
    """Compute an integer per row, i64[n]; booleans are 0 and 1, and rows that are not present are 0.

    position, contains, starts_with, ends_with          text, wanted text
    contains_tokens                                     text, wanted words
    find_in_set                                         text, texts joined by commas
    edit_distance                                       text, text
    code_of_first                                       text
    characters_before                                   text, place of a byte; -1 below 0
    """

def find_invalid_text(
    data: Buffer, offsets: Buffer, wide: bool, present: Buffer | None, first_bit: int, /
) -> int | None:
    """Index of the first of n present texts that is not UTF-8; None if all are valid.

    offsets  i32[n+1] (i64 if `wide`)
    present  a bit for each text, from `first_bit` on, LSB first; None if all are
    """

def split_texts(
    num_rows: int, arguments: list[TextArgument], present: Buffer | None, wide: bool, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Split texts at separators: `(offsets of lists i32[n + 1], offsets of parts, data)`; empty texts have no parts."""

def read_times(
    num_rows: int,
    texts: TextArgument,
    present: Buffer | None,
    patterns: list[list[tuple[str, str]]],
    of_day: bool,
    /,
) -> tuple[OwnedBuffer, int | None]:
    """Parse texts by the first matching pattern: nanoseconds since 1970, or of a day, i64; the first row without match.

    A pattern is a list of parts from `lance_io.filters.functions.time_formats`: a field by its letter, `space`,
    or `text` with the text.
    """

def random_uuids(num_rows: int, seed: bytes, /) -> OwnedBuffer:
    """Random UUIDs (version 4), 36 characters each, concatenated: the keyed stream of BLAKE3.

    seed  32 secret bytes that are used once
    """

def digest_texts(algorithm: str, num_rows: int, values: TextArgument, present: Buffer | None, /) -> OwnedBuffer:
    """Digests of byte strings, concatenated: `md5`, `sha224` .. `sha512`, `blake2s`, `blake2b` or `blake3`."""

def select_json(
    num_rows: int,
    documents: TextArgument,
    present: Buffer | None,
    steps: list[JsonStep],
    answer: str,
    wanted: str,
    depth_max: int,
    /,
) -> tuple[OwnedBuffer, list[OwnedBuffer]]:
    """Select values by a path in stored JSON values: `(state u8[n], buffers)`.

    steps  `("member", name)`, `("all members", "")`, `("all items", "")`, `("key", name or index)`, or for items spans
           `(from_end, index, from_end, index)` of their first and last
    state  0 no match, 1 match, 2 left to the caller: a value that is not converted here
    answer and its buffers:
           exists, contains (an array with the item `wanted`)   none
           length, integer, float, boolean                      i64[n], or f64[n]
           text (JSON, of several an array), string             offsets i32[n + 1], UTF-8
           stored                                               offsets i64[n + 1], bytes

    Raises `DamagedError` for bytes that are not a stored value, `NotImplementedError` as `json_texts`.
    """

# Lists are edited by the indexes of their items in a pool of `pool_items`, which holds the items of all arguments. A
# column of lists (`ListArgument`) is `(offsets i64[n + 1] in the pool, present u8[n] or None)`, a column of items
# `(index of the first, is_literal)`, a column of integers its i64s; columns of one row are literals, as above. `codes`
# (i64[pool_items]) are equal for equal items.

def edit_lists(
    function: str,
    num_rows: int,
    arguments: list[ListArgument],
    pool_items: int,
    codes: Buffer | None,
    items_max: int,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Compute lists as indexes of their items, `(offsets i32[n + 1], indexes i64[...], present u8[n])`.

    concatenate                            lists or items ...; null lists are skipped; null if all are null
    reverse, without_last, without_first   lists
    part                                   lists, first position, last position, [step]
    resize                                 lists, number of items, [item to fill up with]; -1 is the index of a null
    remove                                 lists, item, maximum count; by codes, as all that follow
    replace                                lists, item, replacement, maximum count
    distinct                               lists
    union, intersect, except               lists, lists
    """

def sort_lists(
    num_rows: int,
    lists: ListArgument,
    pool_items: int,
    keys: TextArgument,
    valid: Buffer | None,
    descending: bool,
    nulls_first: bool,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Sort the items of each list by their keys; the result is as in `edit_lists`.

    keys   one per item of the pool
    valid  u8[pool_items]: 0 for items that are null; None if none is
    """

def extremes_of_lists(
    num_rows: int,
    lists: ListArgument,
    pool_items: int,
    keys: TextArgument,
    valid: Buffer | None,
    largest: bool,
    /,
) -> OwnedBuffer:
    """Index of the smallest or largest item of each list, i64[n]; -1 if all items are null."""

def find_in_lists(num_rows: int, arguments: list[ListArgument], codes: Buffer, /) -> OwnedBuffer:
    """First position of an item, i64[n] from 1, 0 for none: lists, item, [first position to search]."""

def positions_in_lists(
    num_rows: int, arguments: list[ListArgument], codes: Buffer, /
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """All positions of an item, `(offsets i32[n + 1], positions i64[...])`: lists, item."""

def first_valid_items(num_rows: int, lists: ListArgument, valid: Buffer, /) -> OwnedBuffer:
    """Index of the first item that is not null, i64[n]; -1 without one. `valid` is u8 for each item of the pool."""

def plan_reads(
    requests: list[tuple[T, Buffer, Buffer]], gap_bytes_max: int, read_bytes_max: int, /
) -> tuple[list[tuple[int, int, list[tuple[T, int, int, int]]]], list[int], OwnedBuffer]:
    """Merge the ranges of all requests on one object into few reads: `(reads, sizes of the answers, offsets i64[n])`.

    A request is `(owner, starts i64[n], ends i64[n])`; the owner is any object. Its ranges may come in any order,
    overlap, repeat and be empty. A read is `(start, end, segments)`. Reads are ascending, disjoint and cover every
    range that is not empty. Ranges no further apart than the gap share a read as long as it stays within
    `read_bytes_max`; a longer run is cut, at range borders if one is near.

    A segment, `(owner, start, end, place)`, is the part of a read that one request needs: everything from its first to
    its last byte there, as positions in the read, and the position in the request's answer. Segments of a request are
    back to back, in the order of the file, so that a range across two reads is contiguous. Range i starts at
    `offsets[i]` of its request's answer (0 if it is empty); requests follow each other in `offsets`. Raises
    `ValueError` for invalid ranges, and for numbers that make no plan.
    """

def part_answer(memory: Buffer, num_bytes: int, start: int, end: int, /) -> tuple[int, int, str | None] | None:
    """Parse the head of the usual answer to a GET of a range: `(end of the head, size of the object, etag)`.

    It begins the first `num_bytes` of the memory: HTTP/1.1, status 206, `content-range` and `content-length` as
    requested, each once, without content or transfer coding, over a persistent connection. None for an incomplete head,
    and for any other head, right or wrong. Raises `ValueError` if `num_bytes` exceeds the memory.
    """

class RangeSigner:
    """Writes and signs GETs of ranges (AWS Signature Version 4) with one set of credentials, which stay private.

    headers  in addition to `host`, `range` and those of the signature: lower-case names, signed unchanged
    tail     the bytes after the signed headers, including the end of the head
    """

    def __new__(
        cls, host: str, access_key: str, region: str, headers: list[tuple[str, str]], tail: str, /
    ) -> RangeSigner: ...
    def heads(self, ranges: list[tuple[str, int, int]], amz_time: str, day_key: bytes, /) -> list[bytes]:
        """Complete requests, each for bytes `start` to `end` of a path, which is percent-encoded.

        amz_time  such as `20261124T101112Z`
        day_key   signing key derived from secret key, day, region and service

        Raises `ValueError` for an empty range, and for an invalid time.
        """

class RangeSockets:
    """Sockets that carry GETs of ranges; one call reads the data of all ready sockets. On Linux only.

    For a request that was sent here it reads the usual answer (see `part_answer`), and nothing else. Sockets have
    numbers, and are watched whether an answer is expected on them or not. Belongs to one thread.

    small_bytes_max  bodies up to this size are received together with their head and copied, which is cheaper than
                     another system call; with the head of larger bodies, as little as possible is received
    scratch_bytes    of memory for that
    """

    def __new__(cls, small_bytes_max: int, scratch_bytes: int, /) -> RangeSockets: ...
    def fileno(self) -> int:
        """A descriptor that becomes readable when `receive` has results."""

    def add(self, socket: object, /) -> int:
        """Watch a connected non-blocking socket, which is kept alive; returns its number."""

    def remove(self, slot: int, /) -> None:
        """Stop watching a socket, before it is closed; an expected answer is abandoned."""

    def send(
        self, gets: Sequence[tuple[int, bytes, int, int, Buffer | None]], now_s: float, /
    ) -> list[tuple[int, int, int]]:
        """Send GETs, each `(number of the socket, head of the request, start, end, memory)`, and expect their answers.

        memory  writable, of the length of the range, for the body; optional for small ranges

        Returns the requests that were not sent completely, for which no answer is expected: `(number, bytes sent, errno
        or 0)`. Raises `ValueError` for an unknown number, for a socket with a pending request, and for memory of
        another size.
        """

    def receive(
        self, now_s: float, /
    ) -> list[tuple[int, Literal[0, 1, 2, 3, 4], int | None, str | None, bytes | None]]:
        """Read available data, per socket and in total a limited amount: `(number, event, ...)`.

        0  ready      no answer is expected, but the socket has data, or its end
        1  begun      size of the object, etag: the head of the usual answer has arrived
        2  complete   size and etag, unless it had begun before; None; the body, unless it was given memory
        3  unusual    None, None, the received bytes: an unusual answer, which is no longer expected
        4  broken     errno or None: the connection has ended; see `give_back`
        """

    def give_back(self, slot: int, /) -> tuple[int, bytes | None] | None:
        """Stop expecting an answer: number of received body bytes, and these bytes, unless it was given memory.

        None if no answer was expected.
        """

    def heard_s(self, slot: int, /) -> float | None:
        """Time of the last received byte of the expected answer, or of its request; None if no answer is expected."""

def measure_ranges(starts: Buffer, ends: Buffer, size_bytes: int | None, /) -> tuple[int, int, int, int | None]:
    """`(sum of the lengths, least start, greatest end, index of an invalid range)`, the first three 0 for no ranges.

    A range is invalid unless `0 <= start <= end`, or if it ends after `size_bytes`, if known. The first range of the
    former kind is returned, else the first of the latter. A sum beyond 64 bits becomes the largest number.
    """

def read_ranges(
    fd: int, starts: Buffer, ends: Buffer, gap_bytes_max: int, threads_max: int, scratch: Buffer | None, /
) -> tuple[OwnedBuffer | None, OwnedBuffer, int, int]:
    """Read ranges of a local file with `pread`: `(buffer, offsets i64[n], num_reads, num_bytes)`.

    Ranges closer than the gap share one read; without merging, ranges are back to back in the order of the request.
    With a sufficiently large, writable `scratch`, the bytes go there and the first item is None. Raises `EOFError` if
    the file ends inside a range (nothing is returned), `OSError` as the system reports it.
    """

def read_copies(
    fd: int,
    copies: list[tuple[Buffer, Buffer, int, Buffer | None]],
    bytes_max: int,
    threads_max: int,
    /,
) -> list[OwnedBuffer | bool]:
    """Read copies of ranges from the file of a disk cache, and verify the checksum of each.

    A copy is `(name, places, checksum, memory)`. The checksum is the CRC-32 of the name and the bytes after it;
    `places` are pairs of i64, start and length of runs of the file, which make up the copy in this order; `memory` is
    the destination, or None. True: the copy is in that memory. A buffer: the copy is in it. False: the checksum
    differs, the file ends early, or places are invalid, longer than the memory or `bytes_max`, or shorter than the
    memory. The content of the memory is then undefined. Raises `OSError` as the system reports it.
    """

def read_once(files: list[tuple[bytes, int, int]], threads_max: int, /) -> list[tuple[OwnedBuffer, int] | None]:
    """Read bytes of files, which are opened for this call only, and their sizes in bytes.

    A file is `(path, start, end)`; with a negative start, its last `-start` bytes, or all of a shorter file. None for
    a file that cannot be opened or read, is not a regular file, or ends before `end`.
    """

def read_files(
    files: list[tuple[int | str, Buffer, Buffer]], gap_bytes_max: int, threads_max: int, scratch: Buffer | None, /
) -> list[tuple[OwnedBuffer | None, OwnedBuffer, int, int]]:
    """`read_ranges` for several files, `(file, starts, ends)` each, read in parallel. One failure fails all.

    A file is a descriptor, or the path of a file that is opened for this call only; `OSError` as for a folder if it is
    not a regular file.

    `scratch` is used for all of them if it has room for 64 bytes more than each file needs, else for none.
    """

def read_joined(
    files: list[int | str],
    starts: Buffer,
    ends: Buffer,
    bounds: list[int],
    gap_bytes_max: int,
    threads_max: int,
    memory: Buffer,
    /,
) -> tuple[OwnedBuffer, int, int]:
    """`read_files` into one memory: file i has the ranges from `bounds[i]` to `bounds[i + 1]`.

    memory  writable, with 64 bytes more than each file needs; `ValueError` if it is shorter

    Returns i64 the start of each range in the memory, the number of reads, and their bytes.
    """
