"""`info`, `schema`, `versions`, `fragments`: contents of a dataset's manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.cli.output import progress, show
from lance_io.cli.tables import Pairs, Table
from lance_io.cli.uri_target import open_table, short_key
from lance_io.dataset.cli_imports import (
    all_summaries,
    format_bytes,
    list_tags,
    list_versions,
    load_live_counts,
    run_on,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import DatasetState, Field, Fragment

# -- info ----------------------------------------------------------------------------------------------------------


def info(uri: str, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io info`."""
    state = open_table(uri, version, tag, storage_option)
    show(_info(state), as_json, _show_info)


def _info(state: DatasetState) -> dict[str, Any]:
    store = state.location.store
    manifest = state.manifest
    fragments = manifest.fragments
    files = [file for fragment in fragments for file in fragment.files]
    with progress("reading tags and versions"):
        tags = run_on(store, list_tags(state))
        numbers = sorted(file.version for file in run_on(store, list_versions(store, state.location.path)))
        num_rows = sum(run_on(store, load_live_counts(state, state.all_fragment_indexes)))
    physical_rows = sum(fragment.physical_rows or 0 for fragment in fragments)
    return {
        "uri": state.root.uri,
        "branch": manifest.branch,
        "version": manifest.version,
        "latest_version": numbers[-1],
        "num_versions": len(numbers),
        "timestamp": manifest.timestamp,
        "num_rows": num_rows,
        "num_deleted_rows": physical_rows - num_rows,
        "num_columns": len(state.schema.fields),
        "num_fragments": len(fragments),
        "num_data_files": len(files),
        "num_deletion_files": sum(fragment.deletion_file is not None for fragment in fragments),
        "data_bytes": None if any(file.size_bytes is None for file in files) else sum(f.size_bytes or 0 for f in files),
        "data_storage_version": state.data_storage_version,
        "file_versions": sorted({file.version.name for file in files}),
        "writer": manifest.writer,
        "stable_row_ids": manifest.has_stable_row_ids,
        "has_index": state.has_index,
        "reader_flags": manifest.reader_flags,
        "writer_flags": manifest.writer_flags,
        "tags": {name: entry["version"] for name, entry in tags.items()},
        "config": dict(manifest.config),
        "metadata": dict(manifest.table_metadata),
        "schema_metadata": _texts(state.schema.metadata),
    }


def _texts(metadata: Mapping[Any, Any]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in metadata.items()}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _show_info(report: dict[str, Any]) -> Shown:
    size = report["data_bytes"]
    shown = {
        "dataset": report["uri"],
        "branch": report["branch"],
        "version": f"{report['version']} (newest {report['latest_version']}, {report['num_versions']} kept)",
        "written": report["timestamp"],
        "by": report["writer"],
        "rows": report["num_rows"],
        "deleted rows": report["num_deleted_rows"] or None,
        "columns": report["num_columns"],
        "fragments": report["num_fragments"],
        "data files": f"{report['num_data_files']}, {'size unknown' if size is None else format_bytes(size)}",
        "deletion files": report["num_deletion_files"] or None,
        "file version": ", ".join(report["file_versions"]) or report["data_storage_version"],
        "stable row ids": report["stable_row_ids"],
        "indices": report["has_index"],
        "tags": ", ".join(f"{name} -> {version}" for name, version in report["tags"].items()),
        "config": _assignments(report["config"]),
        "metadata": _assignments(report["metadata"]),
        "schema metadata": _assignments(report["schema_metadata"]),
    }
    return Pairs(shown)


def _assignments(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in values.items())


# -- schema --------------------------------------------------------------------------------------------------------


def schema(uri: str, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io schema`."""
    state = open_table(uri, version, tag, storage_option)
    report = {
        "fields": [_field(field) for field in state.schema.fields],
        "metadata": _texts(state.schema.metadata),
    }
    show(report, as_json, _show_schema)


def _field(field: Field) -> dict[str, Any]:
    arrow = field.to_arrow()
    return {
        "id": field.id,
        "name": field.name,
        "type": str(arrow.type),
        "logical_type": field.logical_type,
        "nullable": arrow.nullable,
        "metadata": _texts(arrow.metadata or {}),
        "children": [_field(child) for child in field.children],
    }


def _show_schema(report: dict[str, Any]) -> Shown:
    rows = [row for field in report["fields"] for row in _field_rows(field, 0)]
    drawn = Table([">id", "name", "type", "null", "metadata"], rows)
    return [drawn, Pairs(report["metadata"])] if report["metadata"] else drawn


def _field_rows(field: dict[str, Any], depth: int) -> list[tuple[object, ...]]:
    nullable = "" if field["nullable"] else "not null"
    row = (field["id"], "  " * depth + field["name"], field["type"], nullable, _assignments(field["metadata"]))
    return [row, *(below for child in field["children"] for below in _field_rows(child, depth + 1))]


# -- versions --------------------------------------------------------------------------------------------------------


def versions(uri: str, storage_option: list[str] | None, as_json: bool, version: int | None, tag: str | None) -> None:
    """Run `lance-io versions`."""
    state = open_table(uri, version, tag, storage_option)
    store = state.location.store
    with progress("reading manifests"):
        tags = run_on(store, list_tags(state))
        summaries = run_on(store, all_summaries(state.location, state.session))
    only = None if version is None and tag is None else state.manifest.version
    named = {name: entry["version"] for name, entry in tags.items() if entry["branch"] == state.manifest.branch}
    report = {
        "versions": [
            {
                "version": number,
                "timestamp": time,
                "tags": [name for name, tagged in named.items() if tagged == number],
                **{key: int(total) for key, total in totals.items()},
            }
            for number, time, totals in summaries
            if only in (None, number)
        ]
    }
    show(report, as_json, _show_versions)


def _show_versions(report: dict[str, Any]) -> Shown:
    rows = [
        (
            version["version"],
            version["timestamp"],
            version.get("total_rows"),
            version.get("total_fragments"),
            version.get("total_data_files"),
            format_bytes(version.get("total_files_size", 0)),
            version.get("total_deletion_file_rows"),
            ", ".join(version["tags"]),
        )
        for version in report["versions"]
    ]
    return Table([">version", "time (UTC)", ">rows", ">fragments", ">files", ">bytes", ">deleted", "tags"], rows)


# -- fragments -------------------------------------------------------------------------------------------------------


def fragments(uri: str, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io fragments`."""
    state = open_table(uri, version, tag, storage_option)
    show({"fragments": [_fragment(state, fragment) for fragment in state.manifest.fragments]}, as_json, _show_fragments)


def _fragment(state: DatasetState, fragment: Fragment) -> dict[str, Any]:
    deletion = fragment.deletion_file
    return {
        "id": fragment.id,
        "num_rows": fragment.num_rows,
        "physical_rows": fragment.physical_rows,
        "num_deleted_rows": fragment.num_deleted_rows,
        "deletion_file": None
        if deletion is None
        else {
            "path": short_key(state.object_keys.deletion_key(fragment), state.location.path),
            "kind": deletion.kind,
            "num_deleted_rows": deletion.num_deleted_rows,
        },
        "files": [
            {
                "path": short_key(state.object_keys.data_key(file), state.location.path),
                "file_version": file.version.name,
                "size_bytes": file.size_bytes,
                "field_ids": list(file.fields),
                "column_indices": list(file.column_indices),
            }
            for file in fragment.files
        ],
    }


def _show_fragments(report: dict[str, Any]) -> Shown:
    rows: list[tuple[object, ...]] = []
    for fragment in report["fragments"]:
        first: tuple[object, ...] = (fragment["id"], fragment["num_rows"], fragment["num_deleted_rows"])
        for file in fragment["files"] or [None]:
            size = None if file is None or file["size_bytes"] is None else format_bytes(file["size_bytes"])
            columns = None if file is None else sum(field >= 0 for field in file["field_ids"])
            rows.append((*first, file and file["path"], file and file["file_version"], columns, size))
            first = ("", "", "")
    return Table([">id", ">rows", ">deleted", "file", "version", ">fields", ">bytes"], rows)
