"""Tables that between them use every encoding that pylance writes in files of version 2.0 (spec: encodings 2.0, 9)."""

from __future__ import annotations

import decimal
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tests.encodings.cases import random_rows, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N = 1000
PACKED = "lance-encoding:packed"
LARGE = ("pages", "three kinds")  # names of cases of many megabytes begin so


@dataclass(frozen=True)
class ArrayCase:
    """Batches to write, each made by itself, so that nothing is a slice."""

    name: str
    make: Callable[[], list[pa.Array]]
    metadata: dict[str, str] = field(default_factory=dict)

    def table(self) -> pa.Table:
        """The table of this one column, called `c`, a chunk for every batch."""
        if self.name.startswith(LARGE):
            return self._made()
        return self._table

    @cached_property
    def _table(self) -> pa.Table:
        """Made once: making the values in Python takes longer than most of what is tested with them."""
        return self._made()

    def _made(self) -> pa.Table:
        arrays = self.make()
        column = pa.field("c", arrays[0].type, metadata=self.metadata or None)
        return pa.Table.from_batches([pa.record_batch([array], schema=pa.schema([column])) for array in arrays])


def one(name: str, make: Callable[[], pa.Array], **metadata: str) -> ArrayCase:
    keys = {"compression": "lance-encoding:compression", "level": "lance-encoding:compression-level"}
    return ArrayCase(name, lambda: [make()], {keys.get(key, key): value for key, value in metadata.items()})


def every_11th(values: list[Any], dtype: pa.DataType) -> pa.Array:
    return pa.array([None if i % 11 == 0 else value for i, value in enumerate(values)], dtype)


def _primitives() -> Iterator[ArrayCase]:
    for bits in (8, 16, 32, 64):
        for sign in ("", "u"):
            dtype = getattr(pa, f"{sign}int{bits}")()
            yield one(f"{dtype}", lambda t=dtype: every_11th([i % 120 for i in range(N)], t))
    for dtype in (pa.float16(), pa.float32(), pa.float64()):
        kind = dtype.to_pandas_dtype()
        yield one(f"{dtype}", lambda t=dtype, k=kind: pa.array(np.arange(N).astype(k), t, mask=np.arange(N) % 11 == 0))
    yield one("bool", lambda: pa.array([i % 3 == 0 for i in range(N)]))
    yield one("bool nulls", lambda: every_11th([i % 3 == 0 for i in range(N)], pa.bool_()))
    for dtype in (
        pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.timestamp("us", "+05:30"), pa.duration("s"),
    ):  # fmt: skip
        whole = pa.int32() if dtype.bit_width == 32 else pa.int64()
        step = 86_400_000 if dtype == pa.date64() else 1
        yield one(f"{dtype}", lambda t=dtype, w=whole, s=step: every_11th([i * s for i in range(N)], w).cast(t))
    for dtype in (pa.decimal128(38, 2), pa.decimal256(76, 3)):
        yield one(f"{dtype}", lambda t=dtype: every_11th([decimal.Decimal(i) ** 5 / 100 for i in range(N)], t))
    for width in (3, 5):
        yield one(
            f"fixed_size_binary {width}",
            lambda w=width: every_11th([i.to_bytes(w, "big") for i in range(N)], pa.binary(w)),
        )


def _texts() -> Iterator[ArrayCase]:
    mixed = [None if i % 7 == 0 else "" if i % 5 == 0 else f"value {i}" for i in range(N)]
    for dtype in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        yield one(f"{dtype} mixed", lambda t=dtype: pa.array(mixed).cast(pa.binary()).cast(t))
    for count in (99, 100):
        yield one(f"{count} rows of 3 values", lambda n=count: pa.array([f"v{i % 3}" for i in range(n)]))
        yield one(f"{count} distinct", lambda n=count: pa.array([f"v{i % n}" for i in range(N)]))
    fifty = [None if i % 9 == 0 else "" if i % 13 == 0 else f"v{i % 50}" for i in range(N)]
    for dtype in (pa.string(), pa.binary(), pa.large_string()):
        yield one(f"{dtype} 50 distinct", lambda t=dtype: pa.array(fifty).cast(pa.binary()).cast(t))
    for dtype in (pa.string(), pa.large_binary(), pa.int32(), pa.null(), pa.list_(pa.float32(), 3)):
        yield one(f"{dtype} all null", lambda t=dtype: pa.nulls(200, t))
    for scheme in ("zstd", "lz4", "none", "fsst"):
        yield one(f"string {scheme}", lambda: pa.array(words(3000, 20, 60)), compression=scheme)
    yield one("string zstd level", lambda: pa.array(words(3000, 20, 60)), compression="zstd", level="9")
    yield one("large_binary zstd nulls", lambda: every_11th(words(N, 9, 30), pa.large_binary()), compression="zstd")
    yield one("string few zstd", lambda: pa.array([f"v{i % 9}" for i in range(N)]), compression="zstd")
    yield one("string few bytes fsst", lambda: pa.array(words(200, 5, 9)), compression="fsst")
    yield one("string nulls fsst", lambda: every_11th(words(3000, 20, 60), pa.string()), compression="fsst")
    yield one("int zstd", lambda: pa.array(range(N)), compression="zstd")


def _vectors() -> Iterator[ArrayCase]:
    floats = pa.list_(pa.float32(), 3)
    yield one("vectors", lambda: random_rows(floats, 400, 0, 0, 1))
    yield one("vectors nulls", lambda: random_rows(floats, 400, 0.2, 0, 1))
    yield one("vectors of bool", lambda: random_rows(pa.list_(pa.bool_(), 3), 401, 0.1, 0, 2))
    yield one("vectors of int16", lambda: random_rows(pa.list_(pa.int16(), 2), 400, 0.1, 0, 3))
    yield one("vectors of vectors", lambda: random_rows(pa.list_(pa.list_(pa.int16(), 2), 2), 400, 0.1, 0, 4))


def _lists() -> Iterator[ArrayCase]:
    ints, texts = pa.list_(pa.int32()), pa.list_(pa.string())
    inner = pa.struct([("x", pa.int32()), ("y", texts)])
    types = {
        "list": ints,
        "large_list": pa.large_list(pa.int64()),
        "list of string": texts,
        "list of list": pa.list_(ints),
        "list of list of list": pa.list_(pa.large_list(ints)),
        "list of vector": pa.list_(pa.list_(pa.float32(), 3)),
        "list of null": pa.list_(pa.null()),
        "list of bool": pa.list_(pa.bool_()),
    }
    for name, dtype in types.items():
        yield one(name, lambda t=dtype: random_rows(t, 500, 0.15, 0.15, 5))
    yield one("lists all empty", lambda: pa.array([[]] * 300, ints))
    yield one("lists all null", lambda: pa.nulls(300, ints))
    yield one("list of struct all null", lambda: pa.nulls(300, pa.list_(pa.struct([("x", pa.int32())]))))
    yield one("list of dictionary", _list_of_dictionary)
    yield one("list of struct", lambda: _without_null_structs(pa.list_(inner), 500))
    numbers = pa.struct([("a", pa.int32()), ("b", pa.int64()), ("c", pa.bool_()), ("d", pa.int64())])
    yield one("list of struct of numbers", lambda: _without_null_structs(pa.list_(numbers), 500))
    yield one("struct", lambda: _without_null_structs(pa.struct([("a", pa.int8()), ("s", inner)]), 500))
    yield one("struct of list of struct", lambda: _without_null_structs(pa.struct([("l", pa.list_(inner))]), 300))
    yield one("struct of dictionary", _struct_of_dictionary)
    yield one("empty struct", lambda: pa.array([{}] * 100, pa.struct([])))
    yield one("list of empty struct", lambda: pa.array([[{}] * (i % 3) for i in range(99)], pa.list_(pa.struct([]))))


def _without_null_structs(dtype: pa.DataType, count: int) -> pa.Array:
    """Random rows with nulls everywhere but where structs are, which cannot be null."""

    def full(kind: pa.DataType, value: Any) -> Any:
        if pa.types.is_struct(kind):
            value = value or {}
            return {f.name: full(f.type, value.get(f.name)) for f in kind}
        if pa.types.is_list(kind) and value is not None:
            return [full(kind.value_type, item) for item in value]
        return value

    return pa.array([full(dtype, value) for value in random_rows(dtype, count, 0.15, 0.15, 6).to_pylist()], dtype)


def _list_of_dictionary() -> pa.Array:
    items = pa.array([f"v{i % 7}" for i in range(600)]).dictionary_encode()
    return pa.ListArray.from_arrays(pa.array(range(0, 601, 3), pa.int32()), items)


def _struct_of_dictionary() -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([f"v{i % 7}" for i in range(600)]).dictionary_encode()], ["d"])


def _dictionaries() -> Iterator[ArrayCase]:
    texts = [None if i % 11 == 0 else f"v{i % 9}" for i in range(N)]
    for key in (pa.int32(), pa.uint8(), pa.int16()):
        yield one(f"dictionary {key}", lambda k=key: pa.array(texts).dictionary_encode().cast(pa.dictionary(k, "utf8")))
    yield one(
        "dictionary null value",
        lambda: pa.DictionaryArray.from_arrays(
            pa.array([i % 3 for i in range(300)], pa.int8()), pa.array(["x", None, "y"])
        ),
    )
    yield one("dictionary of int64", lambda: pa.array([i % 5 for i in range(N)]).dictionary_encode())
    yield one("dictionary all null", lambda: pa.array([None] * 200, pa.string()).dictionary_encode())
    yield ArrayCase(
        "dictionaries of batches",
        lambda: [pa.array([f"{b}{i % 5}" for i in range(200)]).dictionary_encode() for b in range(4)],
    )


def _packed() -> Iterator[ArrayCase]:
    plain = pa.struct([("i", pa.int32()), ("d", pa.float64()), ("v", pa.list_(pa.float32(), 3))])
    for key in ("packed", PACKED):
        yield one(f"{key} struct", lambda: random_rows(plain, 300, 0, 0, 8), **{key: "true"})
    other = pa.struct([("b", pa.binary(3)), ("t", pa.timestamp("us")), ("n", pa.decimal128(20, 2))])
    rows = [{"b": bytes(3), "t": i, "n": decimal.Decimal(i) / 4} for i in range(300)]
    yield one("packed struct of wide values", lambda: pa.array(rows, other), packed="true")
    member = pa.field("item", pa.struct([("a", pa.int16()), ("b", pa.int64())]), metadata={"packed": "true"})
    lists = [[{"a": j, "b": i} for j in range(i % 4)] if i % 6 else None for i in range(300)]
    yield one("list of packed struct", lambda: pa.array(lists, pa.list_(member)))


def _pages() -> Iterator[ArrayCase]:
    yield ArrayCase(
        "three kinds of pages",
        lambda: [pa.array(range(800_000)), pa.array([None, 1] * 400_000), pa.nulls(1_100_000, pa.int64())] * 2,
    )
    yield ArrayCase(
        "pages of strings", lambda: [pa.array([f"value {i:040}" for i in range(b, b + 50_000)]) for b in range(9)]
    )
    yield ArrayCase("pages of one array", lambda: [pa.array(np.arange(5_242_880))])
    yield ArrayCase("pages of lists", lambda: [_many_lists(b) for b in range(20)])
    yield ArrayCase("pages of lists of structs", lambda: [_structs_in(_many_lists(b)) for b in range(20)])


def _many_lists(seed: int) -> pa.ListArray:
    """A twentieth of a million lists, some of them empty, some null, and now and then a long one."""
    dice = np.random.default_rng(seed)
    lengths = dice.integers(0, 4, 50_000)
    lengths[::5000] = 1000
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    items = pa.array(dice.integers(0, 99, int(offsets[-1])))
    return pa.ListArray.from_arrays(offsets, items, mask=pa.array(np.arange(50_000) % 97 == 96))


def _structs_in(lists: pa.ListArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(lists.offsets, _structs_around(lists.values), mask=lists.is_null())


def _structs_around(items: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([items, items.cast(pa.int8())], ["a", "b"])


def _hidden() -> Iterator[ArrayCase]:
    """What lies under nulls is stored, and must not be seen."""
    bitmap = pa.py_buffer(bytes([0b101]))

    def of(dtype: pa.DataType, buffers: list[Any], children: list[pa.Array] | None = None) -> pa.Array:
        arrow = [bitmap, *map(pa.py_buffer, buffers)]
        return pa.Array.from_buffers(dtype, 3, arrow, 1, children=children or [])

    yield one("hidden int", lambda: of(pa.int32(), [np.array([1, 99, 3], "i4")]))
    offsets = np.array([0, 1, 3, 4], "i4")
    yield one("hidden bytes", lambda: of(pa.string(), [offsets, b"aXYb"]))
    yield one("hidden items", lambda: of(pa.list_(pa.int8()), [offsets], [pa.array([1, 8, 9, 2], pa.int8())]))


def written_cases() -> list[ArrayCase]:
    """All of them."""
    groups = (_primitives, _texts, _vectors, _lists, _dictionaries, _packed, _pages, _hidden)
    return [case for group in groups for case in group()]
