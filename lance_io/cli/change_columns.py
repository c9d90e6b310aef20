"""`update`, `add-column`, `drop-column`: changes of values and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer

from lance_io.cli.change import count_matching, is_interactive
from lance_io.cli.option_texts import assignments
from lance_io.cli.output import progress, show
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    CONFLICT_RETRIES,
    RETRY_TIMEOUT,
    ScanBounds,
    evolve_schema,
    limit_of,
    run,
    update_rows,
)
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown


def update(
    uri: str,
    assignment: list[str],
    where: str | None,
    dry_run: bool,
    yes: bool,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io update`."""
    updates = assignments(assignment)
    state = open_table(uri, options=storage_option)
    if dry_run:
        report = {"version": state.manifest.version, "num_rows_updated": 0}
        show({**report, "num_matching_rows": count_matching(state, where)}, as_json, _show_update)
        return
    if not yes and is_interactive():
        typer.confirm(f"Update {count_matching(state, where):,} rows of {uri}?", abort=True, err=True)
    with progress("updating"):
        after, done = run(state, update_rows(state, updates, where, CONFLICT_RETRIES, RETRY_TIMEOUT, None, None))
    num_rows = done["num_rows_updated"]
    report = {"version": after.manifest.version, "num_rows_updated": num_rows, "num_matching_rows": num_rows}
    show(report, as_json, _show_update)


def _show_update(report: dict[str, Any]) -> Shown:
    if report["num_rows_updated"] != report["num_matching_rows"]:
        return f"{report['num_matching_rows']:,} rows would be updated"
    return f"version {report['version']}: {report['num_rows_updated']:,} rows updated"


def add_column(
    uri: str,
    name: str,
    expression: str | None,
    type: str | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io add-column`."""
    added: Any = pa.field(name, _arrow_type(type)) if type is not None else {name: expression}
    state = open_table(uri, options=storage_option)
    with progress("adding a column"):
        after = run(state, evolve_schema.add_columns(state, added, None, ScanBounds(None, limit_of(state, None))))
    column = after.arrow_schema.field(name)
    report = {"version": after.manifest.version, "column": name, "type": str(column.type), "nullable": column.nullable}
    show(report, as_json, lambda done: f"version {done['version']}: column {done['column']} of type {done['type']}")


def _arrow_type(alias: str) -> pa.DataType:
    try:
        return pa.type_for_alias(alias)
    except ValueError:
        raise UsageError(f"--type: {alias!r} is no Arrow type such as int64 or timestamp[us]") from None


def drop_column(uri: str, name: list[str], storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io drop-column`."""
    state = open_table(uri, options=storage_option)
    with progress("dropping"):
        after = run(state, evolve_schema.drop_columns(state, name))
    report = {"version": after.manifest.version, "dropped": name, "columns": after.arrow_schema.names}
    show(report, as_json, _show_drop)


def _show_drop(report: dict[str, Any]) -> Shown:
    return f"version {report['version']}: without {', '.join(report['dropped'])}; older versions still have them"
