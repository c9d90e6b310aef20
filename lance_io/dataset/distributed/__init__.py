"""WHAT A DISTRIBUTED ENGINE NEEDS: reading and writing one table by many processes, none of which may be the user's.

Engines (Spark is one, in `lance_io/spark/`) import these names and nothing else of `dataset/`, nothing of `table/`,
`commit/` and `proto/`. All calls block; they run in the caller's thread where the store answers at once.

    TablePlace       where the table is, as this process reaches it; every process makes its own
    TableVersion     who plans: one version, opened once. Named by bytes to others who plan; its history, for streams
    TableScan        travels: what is read. Tasks read its parts
    ScanPart         travels: what one task reads, with the manifest's entries of its fragments

    reading          version = TableVersion.open(TablePlace.of_process(uri, options))        who plans
                     scan = version.scan(columns=[("id",)], filter="id > 7")
                     parts = version.parts(scan, part_bytes=128 << 20)
                     scan.read(TablePlace.of_process(uri, options), part, batch_bytes=16 << 20)  each task, its part

What travels is pickled. Unpickling reads nothing, opens nothing and starts nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_io.dataset.distributed.table_place import TablePlace
    from lance_io.dataset.distributed.table_scan import ScanPart, TableScan
    from lance_io.dataset.distributed.table_version import TableVersion

_HOMES = {  # loaded when first used: a task that reads loads nothing that plans or writes
    "ScanPart": "table_scan",
    "TablePlace": "table_place",
    "TableScan": "table_scan",
    "TableVersion": "table_version",
}

__all__ = ["ScanPart", "TablePlace", "TableScan", "TableVersion"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
