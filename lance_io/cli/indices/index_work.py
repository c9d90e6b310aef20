"""`index create`, `index list`, `index stats`, `index optimize`, `index drop`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.cli.output import progress, show
from lance_io.cli.tables import Pairs, Table
from lance_io.cli.uri_target import open_table
from lance_io.dataset.cli_imports import (
    BuildProgress,
    IndexConfig,
    change_plans,
    count_of,
    create_index,
    describe_indices,
    format_bytes,
    index_stats,
    optimize_indices,
    run,
)

if TYPE_CHECKING:
    from lance_io.cli.tables import Shown

_PARAMETERS = {"btree": "zone_size", "zonemap": "rows_per_zone", "bloomfilter": "number_of_items"}


def create(
    uri: str,
    column: str,
    kind: str,
    name: str | None,
    json_path: str | None,
    zone_rows: int | None,
    metric: str | None,
    partitions: int | None,
    sub_vectors: int | None,
    bits: int | None,
    keep: bool,
    memory_limit: int | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io index create`."""
    parameters = {} if zone_rows is None else {_PARAMETERS[kind]: zone_rows}
    index_type: Any = IndexConfig(kind, parameters) if parameters else kind
    if json_path is not None:
        target = {"target_index_type": kind, "path": json_path, "target_index_parameters": parameters}
        index_type = IndexConfig("json", target)
    vectors = None
    if kind.startswith("ivf_"):
        vectors = {"metric": metric or "l2", "num_partitions": partitions}
        vectors |= {"num_sub_vectors": sub_vectors, "num_bits": bits}
    state = open_table(uri, options=storage_option)
    before = {each.name for each in run(state, describe_indices(state))}
    with progress(f"building an index over {column}"):
        after = run(
            state,
            create_index(
                state,
                column,
                index_type,
                name,
                replace=not keep,
                train=True,
                uuid=None,
                memory_limit=memory_limit,
                progress=BuildProgress(),
                vectors=vectors,
            ),
        )
    indices = _listed(after)["indices"]
    made_name = f"{column}_idx" if name is None else name
    built = next((each for each in indices if each["name"] == made_name), indices[-1])
    report = {"version": after.manifest.version, "replaced": built["name"] in before, **built}
    show(report, as_json, _show_created)


def _show_created(report: dict[str, Any]) -> Shown:
    size = "" if report["size_bytes"] is None else f", {format_bytes(report['size_bytes'])}"
    return f"version {report['version']}: index {report['name']} covers {count_of(report['num_rows'], 'row')}{size}"


def list_all(uri: str, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io index list`."""
    show(_listed(open_table(uri, version, tag, storage_option)), as_json, _show_listed)


def _listed(state: Any) -> dict[str, Any]:
    indices = [
        {
            "name": index.name,
            "kind": index.index_type,
            "columns": index.field_names,
            "num_rows": index.num_rows_indexed,
            "num_segments": len(index.segments),
            "size_bytes": index.total_size_bytes,
        }
        for index in run(state, describe_indices(state))
    ]
    return {"version": state.manifest.version, "indices": indices}


def _show_listed(report: dict[str, Any]) -> Shown:
    if not report["indices"]:
        return "no index"
    rows = [
        (
            index["name"],
            index["kind"],
            ", ".join(index["columns"]),
            index["num_rows"],
            index["num_segments"],
            "" if index["size_bytes"] is None else format_bytes(index["size_bytes"]),
        )
        for index in report["indices"]
    ]
    return Table(["index", "kind", "column", ">rows", ">segments", ">bytes"], rows)


def stats(
    uri: str, name: str, version: int | None, tag: str | None, storage_option: list[str] | None, as_json: bool
) -> None:
    """Run `lance-io index stats`."""
    state = open_table(uri, version, tag, storage_option)
    show(run(state, index_stats(state, name)), as_json, _show_stats)


def _show_stats(report: dict[str, Any]) -> Shown:
    names = [*dict.fromkeys(key for segment in report["segments"] for key in segment)]
    rows = [
        (number, report["num_indexed_rows_per_delta"][number], *(segment.get(key, "") for key in names))
        for number, segment in enumerate(report["segments"])
    ]
    pairs = Pairs(
        {
            "index": report["name"],
            "kind": report["index_type"],
            "rows": f"{report['num_indexed_rows']:,} covered, {report['num_unindexed_rows']:,} not",
            "fragments": f"{report['num_indexed_fragments']:,} covered, {report['num_unindexed_fragments']:,} not",
        }
    )
    return [pairs, Table(["segment", ">rows", *names], rows)]


def optimize(
    uri: str,
    name: list[str] | None,
    merge: int,
    retrain: bool,
    memory_limit: int | None,
    storage_option: list[str] | None,
    as_json: bool,
) -> None:
    """Run `lance-io index optimize`."""
    state = open_table(uri, options=storage_option)
    with progress("bringing indices up to date"):
        after = run(
            state,
            optimize_indices(
                state,
                num_indices_to_merge=merge,
                index_names=name or None,
                retrain=retrain,
                memory_limit=memory_limit,
            ),
        )
    is_changed = after.manifest.version != state.manifest.version
    show({**_listed(after), "changed": is_changed}, as_json, _show_optimized)


def _show_optimized(report: dict[str, Any]) -> Shown:
    if not report["changed"]:
        return "nothing to do"
    return [f"version {report['version']}", _show_listed(report)]


def drop(uri: str, name: str, storage_option: list[str] | None, as_json: bool) -> None:
    """Run `lance-io index drop`."""
    state = open_table(uri, options=storage_option)
    after = run(state, change_plans.drop_index(state, name))
    show({"version": after.manifest.version, "name": name}, as_json, _show_dropped)


def _show_dropped(report: dict[str, Any]) -> Shown:
    return f"version {report['version']}: index {report['name']} is gone; a cleanup deletes its files"
