"""Which columns of a filtered scan are read late, for its rows or for its second stage, and their estimated costs."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from lance_io.file.open.open_file import known_files
from lance_io.format.version import V0_1
from lance_io.levels.join import holds_dictionary
from lance_io.levels.row_bytes import fixed_bits
from lance_io.reads.rows.value_widths import width_bytes
from lance_io.reads.scan.late_choice import LateCosts, Role, StoredColumn, is_wide, read_along, worth_waiting
from lance_io.reads.version.column_lists import project
from lance_io.reads.version.system_columns import SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_io.file.open.file_source import FragmentSource
    from lance_io.filters import Predicate
    from lance_io.format.schema import Field
    from lance_io.reads.scan.scan_options import ScanOptions
    from lance_io.reads.version.column_lists import Projection
    from lance_io.reads.version.state import DatasetState

SAMPLED_FRAGMENTS: Final = 8  # a sample for the sizes of all
MEASURED_FIELDS_MAX: Final = 64  # of a scan; those of more are not measured
OTHER_FILES: Final = 1.25  # how many times the bytes of measured files others may have


def late_columns(
    state: DatasetState, projection: Projection, predicate: Predicate | None, options: ScanOptions
) -> tuple[set[str], LateCosts | None]:
    """Top-level columns to read after the filter's, and the costs that decide how to read them.

    The costs are None if rows are taken one by one in any case: at the caller's request, or because fragments have
    dictionaries of their own.
    """
    if predicate is None:
        return set(), None
    needed = {path[0] for path in predicate.paths}
    outputs = {path[0] for path in projection.data_paths} - needed
    match options.late_materialization:
        case bool(choice):
            return outputs if choice else set(), None
        case list(names):
            chosen = project(state.schema, list(dict.fromkeys(names)))
            return outputs & {path[0] for path in chosen.data_paths}, None
    if options.fragments is not None:
        indexes = state.scanned_fragment_indexes(options.fragments)
        return _choose(state, outputs, needed, indexes, _measured_bytes(state, outputs, indexes))
    measured = _measured_bytes(state, outputs, state.all_fragment_indexes)
    key = "late", frozenset(outputs), frozenset(needed), tuple(measured.items())
    chosen_before: tuple[set[str], LateCosts | None] | None = state.prepared.get(key)
    if chosen_before is None:
        chosen_before = _choose(state, outputs, needed, state.all_fragment_indexes, measured)
        state.prepared.put(key, chosen_before)
    return chosen_before


def stages(
    state: DatasetState, predicate: Predicate, options: ScanOptions
) -> tuple[Predicate, Predicate, set[str], LateCosts] | None:
    """The filter in two stages: both predicates, the columns that are read for the second one, their costs.

    None for a single stage: at the caller's request (`late_materialization`), with a limit, for which few rows are
    examined, and where fragments have dictionaries of their own.
    """
    if (
        not predicate.is_conjunction
        or options.late_materialization is not None
        or options.limit is not None
        or options.offset is not None
    ):
        return None
    is_known = isinstance(options.filter, str) and state.prepared.get(("filter", options.filter)) is predicate
    if options.fragments is not None or not is_known:  # the filter of a fragment, or the rest of a filter
        return _choose_stages(state, predicate, state.scanned_fragment_indexes(options.fragments))
    key = "stages", options.filter
    chosen: list[tuple[Predicate, Predicate, set[str], LateCosts] | None] | None = state.prepared.get(key)
    if chosen is None:
        chosen = [_choose_stages(state, predicate, state.all_fragment_indexes)]
        state.prepared.put(key, chosen)
    return chosen[0]


def _choose_stages(
    state: DatasetState, predicate: Predicate, fragment_indexes: Sequence[int]
) -> tuple[Predicate, Predicate, set[str], LateCosts] | None:
    names = {path[0] for path in predicate.paths} - {*SYSTEM_COLUMNS}
    fields = {name: state.schema.field(name) for name in sorted(names)}
    if not fields or any(holds_dictionary(field.arrow_type) for field in fields.values()):
        return None
    parts = predicate.split(lambda name: _stored_bytes(state, [fields[name]], fragment_indexes)[0])
    if parts is None:
        return None
    first, second = parts
    early = {path[0] for path in first.paths}
    later = [field for name, field in fields.items() if name not in early]
    wide, costs = _worth_waiting(state, later, fragment_indexes)
    return None if costs is None or len(wide) < len(later) else (first, second, wide, costs)


def _choose(
    state: DatasetState,
    outputs: set[str],
    needed: set[str],
    fragment_indexes: Sequence[int],
    measured: Mapping[str, float],
) -> tuple[set[str], LateCosts | None]:
    fields = [state.schema.field(name) for name in sorted(outputs)]
    read = [*fields, *[state.schema.field(name) for name in needed if name not in SYSTEM_COLUMNS]]
    if any(holds_dictionary(field.arrow_type) for field in read):
        return {
            field.name for field in fields if is_wide(width_bytes(field.arrow_type), state.context.store.profile)
        }, None
    late, costs = _worth_waiting(state, fields, fragment_indexes)
    along = _read_along(state, late, needed, fragment_indexes, measured) if late else set()
    if not along:
        return late, costs
    rest = [field for field in fields if field.name in late - along]
    return _worth_waiting(state, rest, fragment_indexes)  # alone they may arrive as fast as the filter's


def _read_along(
    state: DatasetState,
    late: set[str],
    needed: set[str],
    fragment_indexes: Sequence[int],
    measured: Mapping[str, float],
) -> set[str]:
    """Late columns that are read with the filter's, because they lie beside these (`read_along`).

    measured  see `_measured_bytes`
    """
    profile = state.context.store.profile
    if profile.costs is None:
        return set()
    num_rows = int(state.physical_rows[list(fragment_indexes)].max())
    fields = [field for field in state.schema.fields if field.name in late or field.name in needed]
    along: set[str] = set()
    for ref in state.sources[fragment_indexes[0]].files:  # an example: fragments mostly have the same files
        spots = [(sorted(ref.columns_of([each.id for each in field.walk()]).values()), field) for field in fields]
        columns: list[StoredColumn] = []
        end = 0
        for indices, field in sorted(((indices, field) for indices, field in spots if indices), key=itemgetter(0)):
            if indices[0] != end:
                columns.append(StoredColumn("", None, "unread"))
            end = indices[-1] + 1
            bits = fixed_bits(field.arrow_type)
            row_bytes = measured.get(field.name) if bits is None else bits / 8
            role: Role = "filter" if field.name in needed else "late"
            columns.append(StoredColumn(field.name, None if row_bytes is None else row_bytes * num_rows, role))
        along |= read_along(columns, len(fragment_indexes), profile)
    return along


def _measured_bytes(state: DatasetState, names: set[str], fragment_indexes: Sequence[int]) -> dict[str, float]:
    """Stored bytes of a row of columns whose types fix no width, by name in order: the most of a sample of open files.

    Empty where requests cost nothing, so that no column comes along, and while no file is open.
    """
    if state.context.store.profile.costs is None:
        return {}
    fields = [state.schema.field(name) for name in sorted(names)]
    fields = [field for field in fields if fixed_bits(field.arrow_type) is None and not _has_blobs(field)]
    if not 0 < len(fields) <= MEASURED_FIELDS_MAX:
        return {}
    measured: dict[str, float] = {}
    for source in _sampled(state, fragment_indexes):
        for ref, file in zip(source.files, known_files(state.context, source.files), strict=True):
            if file is None or not file.num_rows:
                continue
            for field in fields:
                # version 0.1 names structs and lists, too; their bytes count with those of the leaves
                members = [each for each in field.walk() if not (each.children and file.version == V0_1)]
                indices = [*ref.columns_of([each.id for each in members]).values()]
                num_bytes = file.stored_bytes(indices) if indices else None
                if num_bytes is not None:
                    row_bytes = OTHER_FILES * num_bytes / file.num_rows
                    measured[field.name] = max(row_bytes, measured.get(field.name, 0.0))
    return {field.name: measured[field.name] for field in fields if field.name in measured}


def _has_blobs(field: Field) -> bool:
    return any([each.is_blob or each.is_blob_v2 for each in field.walk()])


def _worth_waiting(
    state: DatasetState, fields: Sequence[Field], fragment_indexes: Sequence[int]
) -> tuple[set[str], LateCosts | None]:
    profile = state.context.store.profile
    wide = [field for field in fields if profile.costs is not None or is_wide(width_bytes(field.arrow_type), profile)]
    if not wide or not len(fragment_indexes):
        return set(), None
    row_bytes, file_bytes = _stored_bytes(state, wide, fragment_indexes)
    num_rows = int(state.physical_rows[list(fragment_indexes)].sum())
    if not worth_waiting(num_rows, row_bytes, file_bytes, profile):
        return set(), None
    widths = [width_bytes(each.arrow_type) for field in wide for each in field.walk() if not each.children]
    return {field.name for field in wide}, LateCosts.of(profile, row_bytes, len(widths), widths)


def _stored_bytes(state: DatasetState, fields: Iterable[Field], fragment_indexes: Sequence[int]) -> tuple[float, float]:
    """Approximate stored bytes of a row of some fields, and of a file.

    Manifests record the sizes of files; columns share them by the widths of their types.
    """
    sources = _sampled(state, fragment_indexes)
    sizes = [ref.size_bytes or ref.about_bytes for source in sources for ref in source.files]
    num_rows = sum([source.num_rows for source in sources])
    width = sum([width_bytes(field.arrow_type) for field in fields])
    if not num_rows or not all(sizes):
        return width, float("inf")
    all_width = sum([width_bytes(field.arrow_type) for field in state.schema.fields])
    return sum(sizes) / num_rows * width / max(1.0, all_width), sum(sizes) / len(sizes)


def _sampled(state: DatasetState, fragment_indexes: Sequence[int]) -> list[FragmentSource]:
    step = max(1, len(fragment_indexes) // SAMPLED_FRAGMENTS)
    return [state.sources[fragment_index] for fragment_index in list(fragment_indexes[::step])[:SAMPLED_FRAGMENTS]]
