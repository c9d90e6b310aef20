"""A change uses all of the text that says what it does: what reads ignore, as pylance does, is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.errors import BindError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "n": pa.array([10, 20, 30], pa.int64())})

# what follows an expression, and is more than its end
IGNORED = (
    "; and n = 10",
    ";; and n = 10",
    "; n = 10",
    "; select 1",
    "; )",
    ";\n n",
    " limit 1",
    " LIMIT 1",
    " offset 1",
    " order by id",
)
AN_END = (
    ";",
    "; ",
    ";;",
    " ; -- all of them",
    "; /* ; n = 10 */",
    "\n;\n",
    " -- ; n = 10",
    " /* limit 1 */",
    " or 'a;b' = ';'",
)

# a call that changes rows by a condition, or makes values by an expression; where {} stands for it
CHANGES: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "delete": ("id = 1{}", lambda t, text: t.delete(text)),
    "update where": ("id = 1{}", lambda t, text: t.update({"n": "n + 1"}, where=text)),
    "update": ("n + 1{}", lambda t, text: t.update({"n": text})),
    "add_columns": ("n + 1{}", lambda t, text: t.add_columns({"more": text})),
    "merge_insert matched": (
        "target.id = 1{}",
        lambda t, text: t.merge_insert("id").when_matched_update_all(text).execute(ROWS),
    ),
    "merge_insert by source": (
        "id = 1{}",
        lambda t, text: t.merge_insert("id").when_not_matched_by_source_delete(text).execute(ROWS.slice(1)),
    ),
    "fragment.delete": ("id = 1{}", lambda t, text: t.get_fragments()[0].delete(text)),
    "fragment.merge_columns": ("n + 1{}", lambda t, text: t.get_fragments()[0].merge_columns({"more": text})),
}


def state_of(table: Any, folder: Path) -> Any:
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return lance_io.dataset(table.uri).version, lance_io.dataset(table.uri).to_table(), files


@pytest.mark.parametrize("change", CHANGES)
def test_what_would_be_ignored_is_refused(change: str, tmp_path: Path) -> None:
    text, call = CHANGES[change]
    table = lance_io.write_dataset(ROWS, tmp_path / "t.lance")
    before = state_of(table, tmp_path)
    for behind in IGNORED:
        with pytest.raises((BindError, OSError), match="expected one expression"):
            call(table, text.format(behind))
        assert state_of(table, tmp_path) == before, behind


@pytest.mark.parametrize("change", CHANGES)
def test_what_ends_a_text_is_taken(change: str, tmp_path: Path) -> None:
    """As by pylance, which gives the same table."""
    text, call = CHANGES[change]
    for number, behind in enumerate(AN_END):
        if behind.startswith(" or") and "n + 1" in text:  # which is no condition
            continue
        tables = []
        for library in (lance_io, lance):
            uri = str(tmp_path / f"{library.__name__}{number}.lance")
            table = library.write_dataset(ROWS, uri)
            call(table, text.format(behind))
            tables.append(library.dataset(uri).to_table().sort_by("id"))
        assert tables[0].equals(tables[1]), behind


async def test_awaited_changes(tmp_path: Path) -> None:
    table = await lance_io.AsyncDataset.write(ROWS, tmp_path / "t.lance")
    for change in (table.delete("id = 1; and n = 10"), table.update({"n": "n + 1"}, where="id = 1; and n = 10")):
        with pytest.raises(BindError, match="behind `;`, 'and'"):
            await change
    assert lance_io.dataset(tmp_path / "t.lance").version == 1


def test_reads_ignore_it(tmp_path: Path) -> None:
    table = lance_io.write_dataset(ROWS, tmp_path / "t.lance")
    theirs = lance.dataset(str(tmp_path / "t.lance"))
    for behind in IGNORED:
        for text in (f"id > 1{behind}", f"n = 10{behind}"):
            assert table.count_rows(text) == theirs.count_rows(text), text
            assert table.to_table(filter=text).equals(theirs.to_table(filter=text)), text
