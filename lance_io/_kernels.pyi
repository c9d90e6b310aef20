"""Typed face of the compiled kernels: pure functions over buffers (the Rust crate in `kernels/`).

Every function releases the GIL around its work, checks every length and offset before it uses it, and raises
`DamagedError` where the *bytes* contradict the format, `ValueError` where the *caller* passed sizes that do not
fit together, `MemoryError` where there is no memory for what a file asks for: what grows by its numbers is reserved
first (`kernels/src/sink.rs`). Integers arrays are C-contiguous little-endian buffers (numpy arrays, `OwnedBuffer`s).

Programs are what `lance_io.codecs.tree` compiles a page's encoding messages to:

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
             14 AT_MOST           bytes u64 that a value may decode to (2^31 without), codec; not inside of another
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
    """The bytes contradict the format. The message names the chunk or entry where that is known."""

class TooLargeError(DamagedError):
    """A compressed frame holds more than the program of its page allows (op 14)."""

class PieceTooLargeError(Exception):
    """Rows decode to more than one piece of a take may have: they are to be read in smaller ones. No user sees it."""

class OwnedBuffer:
    """Memory made by a kernel, handed out through the buffer protocol without a copy (read-only)."""

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
    """Which chunks hold these rows, and which byte ranges of the file those are.

    row_starts, row_ends  i64[s], ascending, disjoint row ranges of the page; `row_ends=None` means one row each
    starts                i64[n+1], item_starts or (with `preamble`) row_starts of the chunks
    base_bytes            file offset of the chunk buffer

    Returns `(chunk_ids i64[m], range_firsts i64[g], range_starts i64[g], range_ends i64[g])`: ascending chunks, each
    once; adjacent chunks merged to one range, `range_firsts` being the index into `chunk_ids` of its first chunk.
    """

@final
class IndexedPage:
    """A page with its index, parsed once and given to every kernel that reads some of it.

    program       what the page's layout says
    base_bytes    file offset of the chunk buffer
    byte_offsets  and `item_starts`, as `index_pages` gives them
    row_starts    and `preamble`, as `index_pages` gives them; None without lists (then rows are items)
    dictionary    `(offsets or None, data)`: values are indices and results hold what they point at;
                  None with a dictionary in the program gives the indices
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
    """Decode the selected rows (as given to `plan_chunks`) of a page from the chunks fetched for them.

    buffer, range_offsets  the fetched bytes and where each planned range starts in them
    """

@final
class PlainPage:
    """A page whose data buffer is the values themselves, row after row.

    base_bytes   file offset of the first row
    row_bytes    width of a row
    num_layers   what a leaf of it tells about, all of them without nulls
    num_bitmaps  value buffers, all of them None, that its leaf has before the values
    """

    def __new__(
        cls, base_bytes: int, row_bytes: int, num_rows: int, num_layers: int, num_bitmaps: int, /
    ) -> PlainPage: ...

@final
class ArrayPage:
    """A page of file version 2.0 whose rows are located without reading anything.

    num_rows     of the page
    around       what is around the leaf, innermost first: s struct, l and L list with offsets of 32 and 64 bits
    base_bytes   file offset of the values, of their bytes, or of their codes
    row_bits     of values of one width: 1, or whole bytes; else 0
    present_at   file offset of the bitmap of values that are there; None where it has none
    num_bitmaps  value buffers, all of them None, that its leaf has before the values
    ends         of strings: `(ends, adjustment, end_max, wide)`, as `decode_ends` has them, all of the page
    items        of strings with u8 codes: `(offsets i32, bytes)` of a dictionary; code k is item k - 1, 0 is null
    lists        of a page of lists: `(ends, first)`, theirs, and where the first item is among the values

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
        """Memory held, in bytes, about."""

    def stored_ends(self) -> OwnedBuffer | None:
        """The ends that it was made with, as files store them; None without."""

@final
class WholeArray:
    """A page of file version 2.0 of which all rows are read.

    num_rows     of the page
    around       what is around the leaf, as for `ArrayPage`
    row_bits     of values of one width: 1, or whole bytes; else 0
    has_bitmap   whether it has one of values that are there
    num_bitmaps  value buffers, all of them None, that its leaf has before the values
    ends         of strings: `(adjustment, end_max, wide)`, as `decode_ends` has them
    items        of strings with u8 codes: `(number, ends)` of a dictionary's strings; code k is item k - 1, 0 is null
    lists        of a page of lists: `(ends, first)`, theirs, and where the first item is among the values
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

    files        `(rows, pages, columns)` of each: `pages` are those of `rows`, in order, and `columns` the number that
                 each of its columns has in the result, or None for a column that is not read, whose pages may be None;
                 value buffers of all pages of a result's column are of one kind, and these pages of one class
    num_columns  of the result; each of some page
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
        """Decode what was planned of one file, ahead of `decode`, which is given None for it then; on any thread.

        buffer, offsets  what was fetched for its ranges, and i64 where each starts there
        bytes_max        as of `decode`, for all calls together

        Where this was called for one file, it must be for all that have ranges. Errors as of `decode`.
        """

    def decode(
        self,
        fetched: tuple[Buffer, Buffer] | list[tuple[Buffer, Buffer] | None],
        threads_max: Callable[[], int],
        layouts: Layouts | None,
        bytes_max: int | None = None,
        /,
    ) -> list[Leaf] | ArrowBatch:
        """`decode_miniblock` for what was planned: one leaf per column, its pages one after the other, file by file.

        fetched      what was fetched, and i64 where each range starts there; or both for each file by itself, None for
                     those without ranges
        threads_max  how many pages may be decoded side by side, asked where they are worth a thread
        layouts      of the columns, to get these as a batch where they are laid out like that and have few bytes in
                     all, as whoever keeps one column of a batch keeps the memory of all of them
        bytes_max    that values may decode to: once pages have become more, `PieceTooLargeError` is raised and no other
                     page is begun. None for any number

        A `DamagedError` carries `(file, place of the page in that)` as its second argument.
        """

@final
class Layouts:
    """What the Arrow types of some columns are made of, one after the other, outermost first:

    s  a struct of one member    l, L  a list with offsets of 32, 64 bits    i  a fixed-size list, and its size u32
    f  and bits u32: values of fixed width     v, V  values of variable width with offsets of 32, 64 bits
    """

    def __new__(cls, programs: list[bytes], /) -> Layouts: ...

@final
class ArrowBatch:
    """A batch that waits to be imported, once.

    address  of its `struct ArrowArray` (Arrow's C data interface)
    """

    @property
    def address(self) -> int: ...

def index_pages(
    pages: list[tuple[Any, ...]], buffer: Buffer, offsets: Buffer, /
) -> list[tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer | None, OwnedBuffer | None, Dictionary | None]]:
    """What lies where in many pages: `(byte_offsets, item_starts, row_starts or None, preamble or None, dictionary or
    None)` each.

    byte_offsets  and `item_starts`, i64[n+1] of n chunks, relative to the chunk buffer; chunk metadata words are u16
                  (u32 if `wide`) per chunk: `(bytes / 8 - 1) << 4 | log2(values)`. The last chunk holds what the others
                  leave of `num_items` (its log2 is 0 or exact), and the sizes add up to that of the chunk buffer
    row_starts    i64[n+1] and `preamble` u8[n], of the repetition index (u64 pairs): chunk k holds the first level of
                  rows `row_starts[k] .. row_starts[k+1]`; `preamble[k]` is 1 when it opens with the rest of a row that
                  began in an earlier chunk

    pages    `(program, base_bytes, wide, num_items, num_rows, dictionary, num_dictionary_items, sizes)` each: rows of
             pages with lists, else None; codec program of the dictionary or None; list of the sizes of all buffers
    offsets  i64, where the buffers of the pages lie in `buffer`, page after page and in order, without the chunks

    A `DamagedError` carries the index of the page as its second argument.
    """

def scan_pages(files: list[tuple[list[tuple[Any, ...]], Buffer, Buffer]], /) -> list[Leaf]:
    """All rows of pages of some files, `(pages, buffer, offsets)` each as for `index_pages`, chunks included.

    A `DamagedError` carries the number of the page among all of them.
    """

@final
class KnownFiles:
    """Files that look like others that were understood before: all of their rows out of all of their bytes.

    shapes           per schema: the version, the schema with its tag as the descriptor has it, and how many columns
                     files have; the type of the messages of pages, and the alignment of buffers; columns that have one
                     page with a certain message; of each leaf that is read its columns (those of its lists first) and
                     known pages
    column_encoding  what stands in front of the pages of a column
    alignment        of what is described beside the columns; `metadata_bytes_max` bounds what lies behind the data,
                     `rows_max` items of a page

    A known page is `(message, place, buffers, mini-block, constant)`. `place` is where others have other bytes: symbols
    of strings, or the value; None for nowhere. Numbers of items of mini-blocks may be others in any case.

    mini-block  program before and behind the symbols (all of it, and nothing, without), whether chunks are wide,
                whether there are lists, codec of the dictionary or None; None for constants
    constant    kind of the values (their bits; 0 and -1: strings with 32- and 64-bit offsets), whether all are null

    One of version 2.0 is `(message, buffers, places, (row_bits, has_bitmap, bitmaps), kind, around, lists)`, of which
    `WholeArray` explains all but these:

    places  numbers of the buffers of the bitmap, if there is one, and the values: ends and bytes of strings, or codes
            and the same of the items of their dictionary
    kind    of the values: 0 of one width, 1 and 2 strings with 32- and 64-bit offsets, 3 codes of strings
    lists   message of the page of their ends, how many buffers it has, number of that of the ends, whether Arrow's
            offsets are wide; None without
    """

    def __new__(
        cls,
        shapes: list[Any],
        column_encoding: bytes,
        metadata_bytes_max: int,
        alignment: int,
        rows_max: int,
        /,
    ) -> KnownFiles: ...
    def scan(self, files: list[tuple[Buffer, int]], /) -> tuple[int, list[Leaf]]:
        """How many of the files, from the first on, are as known with one page in each column and nothing amiss, and
        their columns, one file behind the other (none if there is no such file).

        files  all bytes of each, and how many rows it must have
        """

@final
class KnownBatches:
    """The same for files of version 0.1.

    leaves  as `scan_batches` takes them; of a table with so many ids from the first one to the last
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
    """The same from fetched slices of the index: slice i covers entries `first .. last` of row range i, inclusive."""

def decode_fullzip(
    program: bytes, buffer: Buffer, piece_offsets: Buffer, piece_lengths: Buffer, piece_rows: Buffer, /
) -> Leaf:
    """Decode whole rows. Piece i is `piece_lengths[i]` bytes at `piece_offsets[i]` and holds `piece_rows[i]` rows."""

def announced_entries(
    scheme: str,
    heads: tuple[int, int, int],
    unsaid_bytes: int,
    buffer: Buffer,
    offsets: Buffer,
    lengths: Buffer,
    /,
) -> OwnedBuffer:
    """What compressed values of a full-zip page say that they decompress to: i64, the sum of each range of entries.

    scheme        "lz4" or "zstd"
    heads         of an entry: bytes of its control word, bits of definition in that, and bytes of its length
    unsaid_bytes  that count for a frame of zstd without a size
    offsets       where each range begins, `lengths` bytes; what is damaged counts nothing
    """

# -- array encodings of file version 2.0 -------------------------------------------------------------------------------
#
# Ranges of a buffer were fetched: range i begins at byte `offsets[i]` and has `counts[i]` values (both i64[n]); a count
# by itself serves all of them.

def gather_bits(buffer: Buffer, offsets: Buffer, first_bits: Buffer, counts: Buffer, /) -> tuple[OwnedBuffer, int]:
    """Bits one behind the other, and how many are set; range i begins with bit `first_bits[i]` (i64) of its bytes."""

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
    """Where values or lists lie that are stored as the end of each (u64), plus `adjustment` for nulls.

    firsts   i64[n], number of the first value of each range: unless that is 0, the end of the one before precedes it
    end_max  that no end may exceed

    Returns `(starts i64[n], ends i64[n], offsets, validity or None, null_count)`: what each range covers, and the
    offsets (i32, or i64 if `wide`; values + 1) of values in all of that one behind the other.
    """

def inflate(buffer: Buffer, scheme: int, bytes_max: int, /) -> OwnedBuffer:
    """A buffer decompressed (scheme 1 LZ4, 2 zstd), to `bytes_max` bytes at most."""

def decode_symbols(table: Buffer, offsets: Buffer, codes: Buffer, wide: bool, /) -> tuple[OwnedBuffer, OwnedBuffer]:
    """FSST values, `(offsets, bytes)`; their offsets in `codes` (i32, or i64 if `wide`) ascend from 0 to its end."""

def whole_ranges(pages: list[WholeArray], /) -> tuple[OwnedBuffer, OwnedBuffer]:
    """`(starts, ends)`, i64, of the ranges of all of these pages, page after page."""

def scan_arrays(files: list[tuple[list[WholeArray], Buffer, Buffer]], /) -> list[Leaf]:
    """All rows of pages of some files, `(pages, buffer, offsets)` each: `offsets`, i64, tells where in `buffer` the
    ranges of the pages begin, page after page.

    A `DamagedError` carries the number of the page among all of them.
    """

def look_up_codes(
    codes: Buffer, offsets: Buffer, data: Buffer, wide: bool, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer | None, int]:
    """Strings that u8 codes stand for: code k is item k - 1, code 0 is null.

    offsets, data  of the items (i32, or i64 if `wide`)

    Returns `(offsets, bytes, validity or None, null_count)`. Raises DamagedError for codes without an item.
    """

# -- levels, dictionaries, constants ---------------------------------------------------------------------------------

def decode_levels(codec: bytes, buffer: Buffer, num_values: int, /) -> OwnedBuffer:
    """A block-compressed vector of levels, as u16[num_values]."""

def distinct_rows(rows: Buffer, /) -> tuple[OwnedBuffer, OwnedBuffer] | None:
    """The rows (i64) in order and each once, and for each row given, i64, its place among them.

    None for rows that ascend without repetition already.
    """

def float_function(name: str, values: Buffer, width: int, /) -> OwnedBuffer:
    """A function of one float, of each value: what the C library gives, on every processor.

    name    sin cos tan cot asin acos atan sinh cosh tanh asinh acosh atanh sqrt cbrt exp ln log log2 log10 degrees
            radians signum; `log` is to the base 10, computed as a quotient; signum of 0.0 and -0.0 is 0.0
    values  f32[n] or f64[n]
    width   bytes of a value, 4 or 8

    Outside of its domain the NaN is positive for asin, acos and log10, for 64 bits for ln, log and log2, too; for
    others it is negative.
    """

def split_rows(
    rows: Buffer, row_starts: Buffer, ends: list[int], /
) -> tuple[list[int], list[int], list[int], OwnedBuffer]:
    """Which pages of each column hold the rows: `(pages, counts, page_ends, relative)`.

    rows        i64[r], ascending, all of them within each column
    row_starts  i64, of all columns one after the other: where the rows of each page begin, then where the last ends
    ends        where the part of each column ends in `row_starts`

    pages      numbers of the pages that hold some, ascending within a column, columns one after the other
    counts     how many each of them holds
    page_ends  where the part of each column ends in `pages`
    relative   i64[columns, r], the rows counted from the start of their page
    """

@final
class PageRows:
    """What `split_rows` gives, held for a `PagesPlan`; parameters as there.

    pages  numbers of the pages that hold some of the rows, counted over the pages of all columns
    """

    def __new__(cls, rows: Buffer, row_starts: Buffer, ends: list[int], /) -> PageRows: ...
    @property
    def pages(self) -> list[int]: ...
    def of_column(self, number: int, /) -> tuple[int, list[int], list[int], OwnedBuffer]:
        """`(first, numbers, counts, rows)` of a column: where its part of `pages` begins, and the rest as there."""

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

    num_rows  rows of the page (checked against the levels). Returns `(num_items, layers, item_ids)`, `item_ids` being
    the i64 page-relative numbers of the selected visible items, or None when there is no repetition (items are rows).
    """

def decode_dictionary(codec: bytes, buffer: Buffer, num_items: int, /) -> list[OwnedBuffer]:
    """A block-compressed dictionary: `[data]` or `[offsets, data]` (offsets start at 0)."""

# -- writing: levels ------------------------------------------------------------------------------------------------

def shred(
    chunks: list[tuple[int, int, list[tuple[Any, ...]], list[tuple[Any, ...]]]], /
) -> tuple[int, int, OwnedBuffer | None, OwnedBuffer | None, bytes, tuple[int, int], list[OwnedBuffer | None] | None]:
    """Take rows of nested arrays apart: levels, and the values of visible items.

    chunks   `(start, num_rows, nodes, streams)` each: rows of the outermost node's array
    nodes    outermost first, the leaf last: `(kind u8, length, validity or None, bit_offset, offsets or None,
             list_size)`. Kinds: 0 item (struct or leaf), 1 list with i32 and 2 with i64 offsets, 3 fixed-size list of
             structs, 4 leaf of the null type, 5 struct that may be null (around lists its layer always says so).
             Slot i has bit `bit_offset + i` and items `offsets[i]:offsets[i + 1]`
    streams  buffers of the leaf: `(kind u8, unit_bytes, units_per_slot, first_unit, data or None, bytes or None)`.
             Kinds: 0 fixed width, 1 bits, 2 offsets i32 (in `data`) with `bytes`, 3 the same with i64, 4 validity of
             items within slots, None where all are valid. Slot i begins at unit `first_unit + i * units_per_slot`

    Returns `(num_slots, num_items, rep, def, layers, (chunk, first), values)`: page rows, visible items, levels u16
    (None where absent), RepDefLayer numbers innermost first, and the streams of the visible items as `[data]`,
    `[offsets, bytes]` (from 0) or, for validity, `[bitmap or None]` each. Null items of fixed width are like the item
    before, the first ones like the first valid one, bits are 0 and texts empty; items within null slots are valid.
    `values` is None when they are slots `first .. first + num_items` of that chunk's leaf as they are and none is null.

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
    """Encode a page, as `decode_fullzip` reads it.

    program   of the page; FSST values come coded, GENERAL values are compressed one by one
    sources   buffers of the visible items in the order of the codec, each with the bit at which its first value begins:
              as `encode_miniblock` takes them, the members of a VARIABLE_PACKED struct one after the other
    level     of zstd; None is its own default

    Returns the entries, and the byte offsets of rows in them, the end included: 1, 2, 4 or 8 bytes each, as few as do.
    """

def encode_levels(levels: Buffer, bounds: Buffer, with_rle: bool, /) -> tuple[int, int, OwnedBuffer, OwnedBuffer]:
    """Compress blocks of levels with the one codec that makes all of them together smallest.

    levels    u16[n]
    bounds    i64[blocks + 1], from 0 to n: block i is `levels[bounds[i]:bounds[i + 1]]`
    with_rle  whether runs are allowed as a codec

    Returns `(op, width, data, offsets i64[blocks + 1])`: the codec as the number that programs use (1, 4, 5 or 8), the
    packed width for OUT_OF_LINE (else 16), and where each block lies in `data`.
    """

# -- writing: mini-block ---------------------------------------------------------------------------------------------
#
# Values come as a list of `(buffer, bit)`: in the order of a codec's shape ("A decoded leaf" above, but one buffer of
# rows for PACKED_STRUCT), `bit` being where a bitmap begins. FSST takes values that are coded already.

def measure_words(data: Buffer, bits: int, num_values: int, /) -> tuple[int, int, bool]:
    """`(num_runs, packed_bytes, is_constant)` of 8, 16, 32 or 64-bit values.

    num_runs      runs of equal values, none longer than 255 or over 4096 values; about right where few are equal
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

    target_bytes  what chunks of variable-width values aim at
    definition    u16[num_levels]; levels above `max_visible` own no value. Those behind the last value of a chunk
                  begin the next one, but for the last chunk
    levels_max    of one chunk; None is returned when two values have more between them
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
    """Write the chunks that `plan_miniblock` cut: `(words, chunks, num_buffers, plain_bytes, coded_bytes)`.

    wide    chunk words and value sizes are u32 (file version 2.2)
    level   of zstd; None is its default
    levels  repetition, then definition: `(blocks, offsets i64[n+1])`, a compressed block for every chunk

    `plain_bytes` and `coded_bytes` are the sizes of all first value buffers before and after general compression, 0
    without. None is returned when a chunk is larger than its word can tell.
    """

@final
class PageRules:
    """Thresholds by which pages are written, for `encode_small_pages`.

    wide_chunks            chunk words and value sizes are u32, and there are constant pages (file version 2.2)
    chunk_target_bytes     size that chunks of strings aim at
    chunk_levels_max       levels of a chunk, at most
    large_value_bytes      from this size of a value on the page is another layout
    coded_value_bytes_min  texts get a table of symbols from this size of the longest on,
    coded_page_bytes_min   and from this size of the page on
    dictionary_*           fewest values, most items, how many values an item stands for at least, and the greatest
                           share of the plain size
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
    """Pages of neighbouring columns with their places among each other, which `encode_small_pages` makes.

    data   the chunks of all pages, each filled up to a multiple of 64 bytes
    index  their chunk words, in the same way
    """

    data: OwnedBuffer
    index: OwnedBuffer

    def __len__(self) -> int: ...
    def entries(self, page_type: str, data_at: int, index_at: int, /) -> list[bytes]:
        """What `encode_page_entry` makes of each page, when its first row is 0.

        page_type         name of the message of layouts
        data_at, index_at file offsets of `data` and `index`
        """

def encode_small_pages(
    columns: list[tuple[int, int, int, bool, list[Buffer | None]]], rules: PageRules, /
) -> list[tuple[int, SmallPages]]:
    """Pages of columns without nesting or options: `(number of the first column, pages)` per run of neighbours.

    columns  `(kind, offset, length, has_nulls, Arrow buffers)`; kinds are 0 booleans, 1, 2, 4 and 8 words of so many
             bytes, 16 strings, 17 those with 64-bit offsets, 18 and 19 binaries

    Columns that no run has are for the caller: those that want another page, and those with too short buffers.
    """

def repetition_index(repetition: Buffer, level_bounds: Buffer, max_rep: int, /) -> OwnedBuffer:
    """Two u64 per chunk: rows that end in it, levels of the row that it leaves unfinished."""

def encode_fsst(
    offsets: Buffer, data: Buffer, wide: bool, num_values: int, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Values as codes of a table trained on them: `(table, offsets, codes)`.

    offsets  i32 or (if `wide`) i64 [num_values + 1], from any start; those returned are as wide and start at 0
    table    2312 bytes, as pages store it
    """

def distinct_variable(
    offsets: Buffer, data: Buffer, wide: bool, num_values: int, items_max: int, bytes_max: int, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer] | None:
    """The distinct values, in order of appearance: `(indices i32[num_values], offsets, bytes)`.

    None when there are more than `items_max`, or more than `bytes_max` bytes of them and their offsets; a sample may
    tell so early.
    """

def distinct_fixed(
    data: Buffer, bits: int, num_values: int, items_max: int, bytes_max: int, /
) -> tuple[OwnedBuffer, OwnedBuffer] | None:
    """The same for values of 64 or 128 bits: `(indices, values)`."""

def pack_block(data: Buffer, bits: int, num_values: int, /) -> tuple[int, OwnedBuffer]:
    """Values of 32 or 64 bits at the width of the widest: `(width, block)`.

    Up to 1024 values as InlineBitpacking, more as OutOfLineBitpacking.
    """

def compress_block(data: Buffer, scheme: int, level: int | None, /) -> OwnedBuffer:
    """A buffer behind its size (scheme 1 LZ4, 2 zstd)."""

def pack_rows(members: list[tuple[Buffer, int]], num_rows: int, /) -> OwnedBuffer:
    """Rows of packed structs: members, given as `(values, width in bytes)`, back to back."""

# -- column metadata ---------------------------------------------------------------------------------------------------

def column_pages(
    message: Buffer, column_encoding: bytes, page_type: str, data_end: int, alignment: int, rows_max: int, /
) -> tuple[OwnedBuffer, list[tuple[tuple[int, ...], tuple[int, ...], int, int, str, bytes]]] | None:
    """A `ColumnMetadata` message taken apart: `(row_starts i64[n+1], pages)`, the fields of a `PageInfo` for each page.

    column_encoding  bytes that the message must begin with
    page_type        of the layouts, without the slash of its URL
    data_end         end of the part of the file where buffers may lie
    alignment        of the offsets of buffers, in bytes

    None for a message in any other form than writers give it, and for one that a check refuses: a general parser finds
    out what there is to say about it.
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
    """`column_pages` for some columns of a file: `(row_starts i64[n+1], rows of the column, pages)` each; `row_starts`
    is None for a column of one page.

    messages  the file from `columns_at` on, to the end of the column table at least

    None for a column as `column_pages` has it, and for one that the table lacks.
    """

def file_ending(
    tail: Buffer, start: int, file_bytes: int, metadata_bytes_max: int, alignment: int, /
) -> tuple[tuple[int, int, int, int, int], tuple[int, int], bytes, int, bytes] | None:
    """The end of a data file taken apart: `((columns_at, column_table_at, globals_table_at, num_globals, num_columns),
    (major, minor), descriptor without its rows, rows, messages)`.

    tail       the file from `start` to its end, all of the metadata
    alignment  of the global buffers, in bytes
    messages   of it, what lies between `columns_at` and the footer

    None for an end in any other form than writers leave it, for one that a check refuses, and where it begins before
    `start`: the general parsers find out what there is to say about it.
    """

def survey_flat_schema(schema: bytes, fields_max: int, /) -> tuple[bytes, set[str], list[int], bytes] | None:
    """What a `Schema` message says of its fields: `(places, types, marked, metadata)`.

    places    of each field u32[4]: start and end of its message in `schema`, of its name there (0, 0 for an empty one)
    types     the logical types, each once
    marked    numbers of the fields that have metadata
    metadata  a `Schema` message of the metadata of the schema alone

    Fields are those of the top level, with different ids of 0 or more, different names, and no NUL character in name,
    type and keys of metadata. None for a schema that has others, or more than `fields_max`, and for a message in
    another form than writers give it: a general parser reads that.
    """

def find_flat_field(schema: bytes, places: bytes, name: bytes, /) -> int | None:
    """Number of the field of this name, in UTF-8; `places` are those that `survey_flat_schema` gave."""

def flat_field_names(schema: bytes, places: bytes, /) -> list[str]:
    """Names of all fields; `places` are those that `survey_flat_schema` gave."""

def split_manifest(manifest: Buffer, fields_min: int, /) -> tuple[bytes, bytes] | None:
    """A `Manifest` message as two: its fields and their metadata, which is a `Schema` message, and all else.

    None for one that does not begin with at least `fields_min` fields, and for one in another form than writers give.
    """

def survey_fragments(
    manifest: Buffer, /
) -> tuple[list[int], list[int], list[tuple[int, int]], set[tuple[int, int]]] | None:
    """What a `Manifest` message says of its fragments: `(ids, physical rows, deleted rows, versions)`.

    deleted rows  `(place, number)` for each fragment that has a deletion file
    versions      `(major, minor)` of every data file, each once

    None for a message in another form than writers give it: a general parser reads that.
    """

def part_manifest(manifest: Buffer, /) -> tuple[bytes, bytes, bytes, int | None] | None:
    """A `Manifest` message as its fragments and all else: `(fragments, bounds, rest, without row ids)`.

    fragments        the fields that are fragments: a `Manifest` message, too
    bounds           where the `DataFragment` message of each begins and ends in there, u32 each
    rest             the other fields
    without row ids  the place of the first fragment that has row ids neither in its message nor in a data file

    None for a message in another form than writers give it: a general parser reads that.
    """

def sum_manifest(manifest: Buffer, /) -> tuple[int, int, int, list[int]] | None:
    """What a list of versions says of a `Manifest` message: `(version, seconds, nanoseconds, sums)`.

    sums  fragments, data files, their bytes, deletion files, rows, deleted rows, rows that are left; what the message
          does not say counts as 0

    None for a message in another form than writers give it, or with ids and counts that cannot be.
    """

def find_manifest_time(end: Buffer, /) -> tuple[int, int] | None:
    """The time of a `Manifest` message of which only the end is known: `(seconds, nanoseconds)`.

    None where it is not in the end, where more than one can be, and for a message in another form than writers give it.
    """

def piece_ends(message: Buffer, piece_bytes: int, /) -> list[int] | None:
    """Where a message can be cut into pieces of `piece_bytes`, each up to the end of its last field; ends with its end.

    None for a message that is damaged, and for one with groups.
    """

def split_items(layout: bytes, /) -> tuple[bytes, int, bytes] | None:
    """The `PageLayout` message of a mini-block page around its number of items: what is before, that, what is behind.

    None for a message of any other page, and for one in another form than writers give it.
    """

def split_descriptor(descriptor: Buffer, /) -> tuple[bytes, int] | None:
    """A `FileDescriptor` message in the form that writers give it: what is in front of its number of rows, and that."""

# -- pages of file version 0.1 -----------------------------------------------------------------------------------------

def join_bits(buffer: Buffer, starts: Buffer, counts: Buffer, /) -> OwnedBuffer:
    """Runs of bits, one behind the other: run i is `counts[i]` bits from bit `starts[i]` on (i64, lowest bit first)."""

def join_lists(
    buffer: Buffer, places: Buffer, counts: Buffer, items: Buffer, wide: bool, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """The offsets of one array from runs of lists: `(offsets from 0 on, firsts i64[runs], ends i64[runs])`.

    places  where the `counts[i] + 1` offsets of run i begin in `buffer`, i64
    items   of the batch of each run, i64: no offset is larger
    wide    offsets are i64, not i32, here and there

    The items of run i are `firsts[i]` to `ends[i]` of its batch. A `DamagedError` carries the run as second argument.
    """

def batches_ending(
    tail: Buffer, start: int, file_bytes: int, num_ids: int, metadata_bytes_max: int, /
) -> tuple[bytes, int, bytes | None, bytes] | None:
    """What the end of a file of version 0.1 says, if `tail`, which begins at `start`, has it in the usual form:
    `(rows before each batch as i64[batches + 1], position of the page table, the metadata message if it has statistics,
    the page table of as many ids)`.
    """

def scan_batches(
    files: list[tuple[Buffer, int, int, Buffer, Buffer, list[tuple[int, int, int, bool]]]],
    rows_max: int,
    shared_bytes_max: int,
    /,
) -> list[list[tuple[int, list[OwnedBuffer], OwnedBuffer | None, int]] | None]:
    """All rows of columns of files of version 0.1, from all of their bytes.

    A file is `(buffer, place, file_bytes, rows before each batch, page table, columns)`: its bytes lie at `place`. A
    column is `(row of the page table, bits of a value, kind, nullable)`; kinds are 0 for one width, 1 for strings and 2
    for those with wide offsets. Strings may have `shared_bytes_max` times the bytes of their file together.

    Of each file, for each column, `(rows, buffers, validity or None, nulls)`; None for a file in which something is
    amiss.
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
    """One array from runs of values of variable width: `(offsets from 0 on, bytes, validity or None, nulls)`.

    places       where the `counts[i] + 1` offsets of run i begin in `tables`, i64: positions in the file
    data_places  where bytes `starts[i]` to `ends[i]` of the file, in which its values lie, begin in `buffer`
    wide         offsets of the result are i64, not i32
    nullable     values without bytes are null

    A `DamagedError` carries the run as second argument.
    """

# -- bytes ----------------------------------------------------------------------------------------------------------

def gather_ranges(buffer: Buffer, offsets: Buffer, lengths: Buffer, /) -> OwnedBuffer:
    """Concatenate slices of a buffer; a single length (i64[1]) serves all offsets."""

def sum_hashes(data: Buffer, width: int, first: int, num_values: int, /) -> int:
    """The sum, modulo 2^64, of the hashes of `num_values` values of `width` bytes each, from value `first` on."""

def sum_hashes_variable(data: Buffer, offsets: Buffer, is_wide: bool, first: int, num_values: int, /) -> int:
    """The same of `data[offsets[i]:offsets[i + 1]]`; offsets are i64 where `is_wide`, else i32."""

def set_bits(bits: Buffer, first_bit: int, num_bits: int, /) -> OwnedBuffer:
    """Which bits of a mask are set, i64 ascending: the lowest bit of a byte is its first, `first_bit` counts as 0."""

def hash_fixed(
    seed: tuple[int, int], before: Buffer | None, values: Buffer, width: int, num_values: int, /
) -> OwnedBuffer:
    """Keyed 128-bit hashes (SipHash-1-3, seed of two u64) of values of `width` bytes: 16 bytes each.

    before  hashes (16 bytes each) that go in before the values, None for nothing
    """

def hash_variable(
    seed: tuple[int, int], before: Buffer | None, raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, /
) -> OwnedBuffer:
    """The same for slices of `data`, by Arrow's n + 1 offsets, of 64 bits if `wide`."""

@final
class KeyTable:
    """Rows by their keys, which may repeat.

    seed   of the process, against keys that are made to meet
    keys   one behind the other, of `width` bytes: 8 for numbers, 16 for hashes of `hash_fixed` and `hash_variable`
    Takes at most 28 bytes a row beside the key.
    """

    def __new__(cls, seed: tuple[int, int], keys: Buffer, width: int, /) -> KeyTable: ...
    @property
    def has_repeats(self) -> bool:
        """Whether several rows have one key."""

    def find(self, keys: Buffer, threads_max: int, /) -> tuple[OwnedBuffer, OwnedBuffer]:
        """Which keys are there, i64 places ascending, and the first row of each, i64; by several threads if many."""

    def groups(self) -> OwnedBuffer:
        """i64 for each row: the first row that has its key."""

    def rows_of(self, firsts: Buffer, /) -> tuple[OwnedBuffer, OwnedBuffer]:
        """All rows with the keys of some rows that are the first of theirs (i64): places ascending, rows ascending."""

@final
class SliceFilter:
    """Tells most slices of bytes that are not among some, in a fraction of the time that hashing them takes.

    The slices are given as for `hash_variable`.
    """

    def __new__(
        cls, seed: tuple[int, int], raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, /
    ) -> SliceFilter: ...
    def passing(
        self, raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, threads_max: int, /
    ) -> OwnedBuffer:
        """Places, i64 ascending, of the slices that may be among them: all that are, and few others."""

def add_to_bloom(bitmap: Buffer, raw_offsets: Buffer, data: Buffer, wide: bool, num_values: int, /) -> None:
    """Add values, given as for `hash_variable`, to a split block Bloom filter of Parquet's form, in place.

    bitmap  writable; blocks of 32 bytes
    """

def json_texts(
    data: Buffer, offsets: Buffer, present: Buffer | None, depth_max: int, /
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Texts of stored JSON values, `(offsets i32[n + 1], UTF-8)`; the layout is in `lance_io.levels.jsonb`.

    Value i is `data[offsets[i]:offsets[i + 1]]` (offsets i64[n + 1]); rows whose byte in `present` (u8[n]) is 0 have
    no text. Raises `NotImplementedError` for extensions, deeper nesting than `depth_max`, and text beyond 2 GiB.
    """

def encode_jsonb(data: Buffer, offsets: Buffer, depth_max: int, /) -> tuple[OwnedBuffer, OwnedBuffer]:
    """JSON texts as they are stored, `(offsets i64[n + 1], bytes)`: the reverse of `json_texts`.

    Text i is `data[offsets[i]:offsets[i + 1]]` (offsets i64[n + 1]). Raises `ValueError` with row and place for text
    that is no JSON, keys that come twice in an object, deeper nesting than `depth_max`, and values of 256 MiB.
    """

# -- functions of filters ------------------------------------------------------------------------------------------
#
# A column of texts or byte strings (`TextArgument`) is `(data, offsets, is_wide)`, offsets (i32, i64 if wide) one more
# than there are rows; one of integers its i64s. A column of one row is a literal, which stands beside each row.
# `present` (u8[n]) is 0 in rows that are not computed, because an argument is null; None if all are. All raise
# `ValueError` for a row that has no value, and `KeyboardInterrupt` where the user wants that.

def change_texts(
    function: str,
    num_rows: int,
    arguments: list[TextArgument],
    present: Buffer | None,
    wide: bool,
    bytes_max: int,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """A text of each row, `(offsets, data)`; the texts must fit what `wide` or narrow offsets reach.

    bytes_max  of one text: `repeat` and `pad_left` could ask for any size

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
    """An integer of each row, i64[n]; truths are 0 and 1, and so are rows that are not present.

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
    """The first of n texts that is present and is not UTF-8; None where all are.

    offsets  i32[n+1] (i64 if `wide`)
    present  a bit for each text, from `first_bit` on, LSB first; None where all are
    """

def split_texts(
    num_rows: int, arguments: list[TextArgument], present: Buffer | None, wide: bool, /
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Texts cut at separators, `(offsets of lists i32[n + 1], offsets of parts, data)`; an empty text has no parts."""

def read_times(
    num_rows: int,
    texts: TextArgument,
    present: Buffer | None,
    patterns: list[list[tuple[str, str]]],
    of_day: bool,
    /,
) -> tuple[OwnedBuffer, int | None]:
    """Nanoseconds since 1970, or of a day, of texts by the first pattern that fits, i64; the first row without one.

    A pattern is its parts as `lance_io.filters.functions.time_formats` takes it apart: a field by its letter, `space`,
    or `text` with the text.
    """

def random_uuids(num_rows: int, seed: bytes, /) -> OwnedBuffer:
    """Random UUIDs (version 4), 36 characters each, one behind another: the keyed stream of BLAKE3.

    seed  32 bytes that nobody knows and that are used once
    """

def digest_texts(algorithm: str, num_rows: int, values: TextArgument, present: Buffer | None, /) -> OwnedBuffer:
    """Digests of byte strings, one behind another: `md5`, `sha224` .. `sha512`, `blake2s`, `blake2b` or `blake3`."""

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
    """What a path leads to in stored JSON values: `(state u8[n], buffers)`.

    steps  `("member", name)`, `("all members", "")`, `("all items", "")`, `("key", name or place)`, or for items spans
           `(from_end, place, from_end, place)` of their first and last
    state  0 nothing, 1 found, 2 left to the caller: a value that is not converted here
    answer and its buffers:
           exists, contains (an array with the item `wanted`)   none
           length, integer, float, boolean                      i64[n], or f64[n]
           text (JSON, of several an array), string             offsets i32[n + 1], UTF-8
           stored                                               offsets i64[n + 1], bytes

    Raises `DamagedError` for bytes that are no such value, `NotImplementedError` as `json_texts`.
    """

# Lists are edited by the places of their items in a pool of `pool_items`, in which the items of all arguments lie. A
# column of lists (`ListArgument`) is `(offsets i64[n + 1] in the pool, present u8[n] or None)`, one of items
# `(place of the first, is_literal)`, one of integers its i64s; columns of one row are literals, as above. `codes`
# (i64[pool_items]) are the same for equal items.

def edit_lists(
    function: str,
    num_rows: int,
    arguments: list[ListArgument],
    pool_items: int,
    codes: Buffer | None,
    items_max: int,
    /,
) -> tuple[OwnedBuffer, OwnedBuffer, OwnedBuffer]:
    """Lists by the places of their items, `(offsets i32[n + 1], places i64[...], present u8[n])`.

    concatenate                            lists or items ...; null lists are left out, and null when all are
    reverse, without_last, without_first   lists
    part                                   lists, first position, last position, [step]
    resize                                 lists, number of items, [item to fill up with]; -1 is the place of a null
    remove                                 lists, item, how many of it; by codes, as all that follow
    replace                                lists, item, another in its place, how often
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
    """The items of each list in the order of their keys, as `edit_lists` gives lists.

    keys   one for each item of the pool
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
    """The place of the smallest or largest item of each list, i64[n]; -1 without one that is not null."""

def find_in_lists(num_rows: int, arguments: list[ListArgument], codes: Buffer, /) -> OwnedBuffer:
    """Where an item occurs first, i64[n] from 1, 0 for nowhere: lists, item, [first position that counts]."""

def positions_in_lists(
    num_rows: int, arguments: list[ListArgument], codes: Buffer, /
) -> tuple[OwnedBuffer, OwnedBuffer]:
    """Every position of an item, `(offsets i32[n + 1], positions i64[...])`: lists, item."""

def first_valid_items(num_rows: int, lists: ListArgument, valid: Buffer, /) -> OwnedBuffer:
    """The place of the first item that is not null, i64[n]; -1 without one. `valid` is u8 for each item of the pool."""

def plan_reads(
    requests: list[tuple[T, Buffer, Buffer]], gap_bytes_max: int, read_bytes_max: int, /
) -> tuple[list[tuple[int, int, list[tuple[T, int, int, int]]]], list[int], OwnedBuffer]:
    """Few reads for the ranges of all requests on one object: `(reads, sizes of the answers, offsets i64[n])`.

    A request is `(owner, starts i64[n], ends i64[n])`; the owner is any object. Its ranges may come in any order,
    overlap, repeat and be empty. A read is `(start, end, segments)`. Reads are ascending, disjoint and cover every
    range that is not empty. Ranges no further apart than the gap share a read as long as it stays within
    `read_bytes_max`; a run longer than that is cut, at range borders where one lies near.

    A segment, `(owner, start, end, place)`, is what one request needs of a read: everything from the first to the last
    byte that it wants there, as places in the read, and where it goes in the request's answer. Segments of a request
    lie back to back, in the order of the file, so that a range over the border of two reads lies unbroken. Range i
    starts at `offsets[i]` of its request's answer (0 if it is empty), those of each request behind those of the one
    before. Raises `ValueError` for ranges that are none, and numbers that make no plan.
    """

def part_answer(memory: Buffer, num_bytes: int, start: int, end: int, /) -> tuple[int, int, str | None] | None:
    """The head of the usual answer to a GET of a range: `(end of the head, size of the object, etag)`.

    It begins the first `num_bytes` of the memory: HTTP/1.1, status 206, `content-range` and `content-length` as asked,
    each once, neither coded nor cut in chunks, over a connection that stays. None for a head that is not all there, and
    for every other one, right or wrong. Raises `ValueError` for more bytes than there are.
    """

class RangeSigner:
    """Writes and signs GETs of ranges (AWS Signature Version 4) with one set of credentials, which it does not show.

    headers  besides `host`, `range` and those of the signature: lower-case names, signed as they are
    tail     what follows the headers that are signed, with the end of the head
    """

    def __new__(
        cls, host: str, access_key: str, region: str, headers: list[tuple[str, str]], tail: str, /
    ) -> RangeSigner: ...
    def heads(self, ranges: list[tuple[str, int, int]], amz_time: str, day_key: bytes, /) -> list[bytes]:
        """Whole requests, each for bytes `start` to `end` of a path, which is percent-encoded.

        amz_time  such as `20261124T101112Z`
        day_key   what secret key, day, region and service come to

        Raises `ValueError` for an empty range, and for a time that is none.
        """

class RangeSockets:
    """Sockets that carry GETs of ranges: what has come on all that are ready is read by one call. On Linux only.

    Of a request that was sent here the usual answer is read (see `part_answer`), and nothing else. Sockets have
    numbers, and are watched, whether an answer is expected on them or not. Belongs to one thread.

    small_bytes_max  bodies up to this size are received together with their head and copied, which costs less than
                     another call of the system; of larger ones as little as possible comes with the head
    scratch_bytes    of memory for that
    """

    def __new__(cls, small_bytes_max: int, scratch_bytes: int, /) -> RangeSockets: ...
    def fileno(self) -> int:
        """A descriptor that can be read when `receive` has something to tell."""

    def add(self, socket: object, /) -> int:
        """Watch a connected socket that does not block, which is kept open; its number."""

    def remove(self, slot: int, /) -> None:
        """Forget a socket, before it is closed; an answer that is expected on it is given up."""

    def send(
        self, gets: Sequence[tuple[int, bytes, int, int, Buffer | None]], now_s: float, /
    ) -> list[tuple[int, int, int]]:
        """Send GETs, each `(number of the socket, head of the request, start, end, memory)`, and expect their answers.

        memory  writable, of the length of the range: where the body goes; small ones may do without

        Gives those that were not sent whole, of which no answer is expected: `(number, bytes sent, errno or 0)`. Raises
        `ValueError` for a number that no socket has, one under way already, and memory that does not fit.
        """

    def receive(
        self, now_s: float, /
    ) -> list[tuple[int, Literal[0, 1, 2, 3, 4], int | None, str | None, bytes | None]]:
        """Read what has come, of each socket and in all no more than takes a moment: `(number, what, ...)`.

        0  ready      no answer is expected, but there is something to read, or the end
        1  begun      size of the object, etag: the head of the usual answer is here
        2  complete   size and etag, unless it had begun before; None; the body, unless it was given memory
        3  unusual    None, None, what has come: it begins otherwise, and is no more expected
        4  broken     errno or None: the connection has ended; see `give_back`
        """

    def give_back(self, slot: int, /) -> tuple[int, bytes | None] | None:
        """Expect no answer any more: bytes of the body that have come, and these, unless it was given memory.

        None where none was expected.
        """

    def heard_s(self, slot: int, /) -> float | None:
        """When something of the answer that is expected has come last, or its request was sent; None for no answer."""

def measure_ranges(starts: Buffer, ends: Buffer, size_bytes: int | None, /) -> tuple[int, int, int, int | None]:
    """`(sum of the lengths, least start, greatest end, number of a range that cannot be)`, the first three 0 for none.

    A range cannot be unless `0 <= start <= end`, nor where it ends behind `size_bytes`, if that is known: of those the
    first is named, unless there is one of the former kind. A sum beyond 64 bits is given as the largest number.
    """

def read_ranges(
    fd: int, starts: Buffer, ends: Buffer, gap_bytes_max: int, threads_max: int, scratch: Buffer | None, /
) -> tuple[OwnedBuffer | None, OwnedBuffer, int, int]:
    """Read ranges of a local file with `pread`: `(buffer, offsets i64[n], num_reads, num_bytes)`.

    Ranges closer than the gap share one read; without merging, ranges lie back to back in the order given. With a
    writable `scratch` of sufficient size the bytes go there and the first item is None. Raises `EOFError` when the
    file ends inside a range (nothing is returned), `OSError` as the system reports it.
    """

def read_copies(
    fd: int,
    copies: list[tuple[Buffer, Buffer, int, Buffer | None]],
    bytes_max: int,
    threads_max: int,
    /,
) -> list[OwnedBuffer | bool]:
    """Read copies of ranges from the file of a disk cache, and compare each with its checksum.

    A copy is `(name, places, checksum, memory)`: the CRC-32 is that of the name and the bytes behind it; places are
    pairs of i64, start and length of runs of the file, which make up the copy in this order; memory is where it is to
    be, or None. True: it is in that memory. A buffer: it is in that. False: the checksum is another one, the file ends
    before, places cannot be, are longer than the memory or `bytes_max`, or shorter than the memory. What then is in
    the memory may be anything. Raises `OSError` as the system reports it.
    """

def read_once(files: list[tuple[bytes, int, int]], threads_max: int, /) -> list[tuple[OwnedBuffer, int] | None]:
    """Bytes of files that are opened for this alone, and their sizes in bytes.

    A file is `(path, start, end)`; with a negative start, its last `-start` bytes, or all of a shorter one. None for
    one that cannot be opened or read, is no regular file, or ends before.
    """

def read_files(
    files: list[tuple[int | str, Buffer, Buffer]], gap_bytes_max: int, threads_max: int, scratch: Buffer | None, /
) -> list[tuple[OwnedBuffer | None, OwnedBuffer, int, int]]:
    """`read_ranges` for several files, `(file, starts, ends)` each, read side by side. One failure is that of all.

    A file is its descriptor, or the name of one that is opened for this alone; `OSError` as for a folder if that is no
    regular file.

    `scratch` is used for all of them, if it has room for 64 bytes more than each file needs, or for none.
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

    Returns i64 where each range starts in the memory, the number of reads, and their bytes.
    """
