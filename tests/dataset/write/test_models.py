"""Rows of other libraries' classes: pydantic models beside pylance, and datasets of Hugging Face."""

from __future__ import annotations

import datetime as dt
import enum
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, List, Optional, Tuple  # noqa: UP035 (both spellings are annotations)

import lance
import pyarrow as pa
import pydantic
import pytest
from lance.pydantic import pydantic_to_schema

import lance_io
from lance_io.changes.write.pydantic_schema import schema_of_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Letter(enum.StrEnum):
    """Strings as they are."""

    X = "x"
    Y = "y"


class Color(enum.Enum):
    """Members that are no strings themselves."""

    RED = "red"


class Number(enum.Enum):
    """Whole numbers."""

    ONE = 1


class Mixed(enum.Enum):
    """Values of two types."""

    ONE = 1
    TWO = "two"


class Inner(pydantic.BaseModel):
    """A model in a model."""

    p: int
    q: str | None = None


class Row(pydantic.BaseModel):
    """What pylance writes, too."""

    a: int = 3
    b: Optional[str] = None  # noqa: UP045
    c: float
    d: List[int]  # noqa: UP006
    e: Inner
    f: Inner | None = None
    g: dt.datetime
    h: bytes = b""
    i: bool
    j: list[int | None]
    k: list[Inner]
    m: list[Inner] | None = None
    n: dt.date
    o: Tuple[int, ...]  # noqa: UP006
    p: Letter
    q: list[list[str]]
    r: dt.datetime = pydantic.Field(json_schema_extra={"tz": "UTC"})
    s: list[list[int] | None]


class WithMembers(pydantic.BaseModel):
    """Enumerations whose members pylance does not write."""

    color: Color
    number: Number
    maybe: Color | None = None
    colors: list[Color]
    mixed: Mixed


def row(**values: Any) -> Row:
    given = {"c": 1.5, "d": [1], "e": Inner(p=1), "g": dt.datetime(2024, 1, 1, 1, 2, 3, 4), "i": True, "j": [1, None]}
    given |= {"k": [Inner(p=2, q="z")], "n": dt.date(2024, 1, 1), "o": (1, 2), "p": Letter.Y, "q": [["a"], []]}
    given |= {"r": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "s": [[1], None]}
    return Row(**given | values)


@pytest.mark.parametrize("model", [Row, WithMembers, Inner])
def test_the_schema_is_that_of_pylance(model: type[pydantic.BaseModel]) -> None:
    assert schema_of_model(model).equals(pydantic_to_schema(model), check_metadata=True)


@pytest.mark.parametrize("kind", [int | str, int | str | None, set, dict, list, complex], ids=str)
def test_annotations_that_no_type_stands_for(kind: Any) -> None:
    model = pydantic.create_model("Odd", a=(kind, ...))
    for schema_of in (pydantic_to_schema, schema_of_model):
        with pytest.raises(TypeError):
            schema_of(model)


def test_models_become_the_table_that_pylance_makes(tmp_path: Path) -> None:
    """Nullability, and columns without any value, are those of the class."""
    models = [row(), row(b="x", f=Inner(p=7), m=[])]
    tables = [library.write_dataset(models, str(tmp_path / library.__name__)) for library in (lance, lance_io)]
    assert tables[0].to_table() == tables[1].to_table()
    assert tables[0].schema == tables[1].schema
    given = lance_io.write_dataset([Inner(p=1)], tmp_path / "given", pa.schema([("p", pa.int8())]))
    assert given.to_table() == pa.table({"p": pa.array([1], pa.int8())})


def test_members_of_enumerations(tmp_path: Path) -> None:
    models = [WithMembers(color=Color.RED, number=Number.ONE, colors=[Color.RED], mixed=Mixed.TWO)]
    expected = {"color": "red", "number": 1, "maybe": None, "colors": ["red"], "mixed": "two"}
    assert lance_io.write_dataset(models, tmp_path).to_table().to_pylist() == [expected]


@pytest.mark.parametrize("other", [Inner(p=1), {"c": 1.0}, type("Sub", (Row,), {})(**row().model_dump())])
def test_models_of_two_classes_are_refused(tmp_path: Path, other: Any) -> None:
    for library in (lance, lance_io):
        with pytest.raises(TypeError, match=r"data\[1\] must be an instance of"):
            library.write_dataset([row(), other], str(tmp_path))


# -- what the package `datasets` has, as far as it matters -------------------------------------------------------------


class Dataset:
    """A table, and which of its rows are seen in which order."""

    def __init__(self, table: pa.Table, indices: list[int], *, has_features: bool = True) -> None:
        self.data = SimpleNamespace(table=table)
        self.features = SimpleNamespace(arrow_schema=table.schema) if has_features else None
        self._rows = table.take(indices)
        self._format = ""

    def with_format(self, kind: str) -> Dataset:
        self._format = kind
        return self

    def iter(self, batch_size: int) -> Iterator[pa.Table]:
        assert self._format == "arrow"
        for start in range(0, self._rows.num_rows, batch_size):
            yield self._rows.slice(start, batch_size)


class DatasetDict(dict[str, Dataset]):
    """Several."""


@pytest.fixture
def hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"Dataset": Dataset, "DatasetDict": DatasetDict}
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(**names))


@pytest.mark.usefixtures("hugging_face")
def test_datasets_are_written_as_they_are_seen(tmp_path: Path) -> None:
    """(pylance writes all rows of the table below.)"""
    table = pa.table({"a": range(20_000)}).replace_schema_metadata({"huggingface": "{}"})
    seen = [19_999, *range(0, 20_000, 2)]
    written = lance_io.write_dataset(Dataset(table, seen), tmp_path / "seen")
    assert written.to_table()["a"].to_pylist() == seen
    assert written.schema == table.schema and written.schema.metadata == table.schema.metadata
    plain = Dataset(table, seen, has_features=False)
    assert lance_io.write_dataset(plain, tmp_path / "plain", table.schema).count_rows() == len(seen)
    with pytest.raises(ValueError, match="Must provide schema"):
        lance_io.write_dataset(plain, tmp_path / "none")
    with pytest.raises(ValueError, match="DatasetDict"):
        lance_io.write_dataset(DatasetDict(train=plain), tmp_path / "none")
