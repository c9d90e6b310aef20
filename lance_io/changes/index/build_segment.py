"""Builds one segment: a scan of the column with row addresses or ids, the builder of its kind, the files of its folder.

Nothing names the files before a commit, and a failed build removes them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from lance_io.changes.index.build_progress import BuildProgress
from lance_io.changes.index.index_request import checked_uuid
from lance_io.changes.index.segment_files import SegmentFiles
from lance_io.changes.index.vectors.vector_settings import VectorRequest
from lance_io.changes.join.spill_file import SpillFile
from lance_io.changes.join.spilled_batches import SpilledBatches
from lance_io.index.build import index_kinds as kinds
from lance_io.index.build.bitmap_files import BitmapBuilder, LabelListBuilder, NgramBuilder
from lance_io.index.build.bloom_files import BloomFilterBuilder
from lance_io.index.build.btree_files import BTreeBuilder
from lance_io.index.build.json_values import JsonBuilder
from lance_io.index.build.vectors.ivf_files import IvfBuilder
from lance_io.index.build.zone_files import ZoneMapBuilder
from lance_io.index.text.text_builder import TextBuilder
from lance_io.index.text.text_paths import member_lists
from lance_io.levels.arrays import values_of
from lance_io.plans.cpu_requests import Compute
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import RollBackOnError
from lance_io.plans.streams import EachInPlan
from lance_io.proto import table_pb2
from lance_io.reads.index.text_indices import text_output
from lance_io.reads.memory_limit import INTERNAL_BATCH_ROWS_MAX, scan_memory_options
from lance_io.reads.rows.deletions_and_ids import load_live_counts
from lance_io.reads.scan.execute import projected_batches
from lance_io.reads.scan.scan_options import scan_options
from lance_io.reads.version.column_lists import Projection, project
from lance_io.reads.version.system_columns import ROW_ADDRESS, ROW_ID
from lance_io.records import dataclass
from lance_io.table.manifest.index_section import decode_index, encode_fragment_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_io.changes.index.index_request import IndexRequest
    from lance_io.changes.index.vectors import copied_rows as copies
    from lance_io.changes.index.vectors import train_model as training
    from lance_io.index.build.index_file import IndexBuilder
    from lance_io.plans.plan import Plan
    from lance_io.reads.index.vector_indices import VectorIndex
    from lance_io.reads.version.state import DatasetState
    from lance_io.table.manifest.index_section import IndexMetadata

    AnyRequest = IndexRequest | VectorRequest
else:
    copies = lazy_plans("lance_io.changes.index.vectors.copied_rows")
    training = lazy_plans("lance_io.changes.index.vectors.train_model")


@dataclass(frozen=True, slots=True, eq=False)
class NewSegment:
    """A built segment: its entry, and its files, which no version names yet."""

    entry: IndexMetadata
    files: SegmentFiles


def build_segment(
    state: DatasetState,
    request: AnyRequest,
    fragment_ids: Sequence[int],
    uuid: str | None,
    limit_bytes: int,
    progress: BuildProgress | None = None,
    sources: Sequence[VectorIndex] = (),
) -> Plan[NewSegment]:
    """Build a segment over fragments of the open version; none give files without rows.

    uuid      of the segment, which must not exist; None for a random one
    progress  gets reports
    sources   segments of vectors, each as an index of its own: those with the model of the request are copied, and the
              fragments that they cover are not scanned
    """
    progress, name = progress or BuildProgress(), checked_uuid(uuid)
    files = SegmentFiles(state.location, name)
    if uuid is not None:
        yield from files.check_new()
    if isinstance(request, VectorRequest) and request.model is None:
        model = (
            (yield from training.train_model(state, request, fragment_ids, limit_bytes, progress))
            if fragment_ids
            else None
        )
        if model is None:  # a segment without files, which waits for rows to learn from
            return NewSegment(_entry(state, request, [], name, files), files)
        request = replace(request, model=model)
    builder = _builder(request, limit_bytes)

    def build() -> Plan[None]:
        try:
            left = fragment_ids
            if sources and isinstance(request, VectorRequest) and isinstance(builder, IvfBuilder):
                copied = yield from copies.copy_rows(state, request, builder, sources)
                left = [fragment_id for fragment_id in fragment_ids if fragment_id not in copied]
            if left:
                yield from read_column(state, request, left, builder, limit_bytes, progress)
            progress.begin("write_files")
            yield from files.write(builder.files())
            progress.end()
        finally:
            builder.close()

    yield RollBackOnError(build(), files.remove)
    return NewSegment(_entry(state, request, fragment_ids, name, files), files)


def _builder(request: AnyRequest, limit_bytes: int) -> IndexBuilder:
    if isinstance(request, VectorRequest):
        assert request.model is not None, "learned, or known"
        return IvfBuilder(request.model, SpillFile(), limit_bytes)
    if request.json_path is not None:
        return JsonBuilder(request.json_path, lambda dtype: _builder_of(request, dtype, limit_bytes))
    return _builder_of(request, request.value_type, limit_bytes)


def _builder_of(request: IndexRequest, dtype: pa.DataType, limit_bytes: int) -> IndexBuilder:
    parameters, store = request.parameters, SpilledBatches()  # without a file until it is used
    match request.kind:
        case kinds.BTREE:
            return BTreeBuilder(dtype, store, limit_bytes, parameters["zone_size"])
        case kinds.BITMAP:
            return BitmapBuilder(dtype, store, limit_bytes)
        case kinds.LABEL_LIST:
            return LabelListBuilder(dtype, store, limit_bytes)
        case kinds.NGRAM:
            return NgramBuilder(store, limit_bytes)
        case kinds.INVERTED:
            text = request.text
            return TextBuilder(
                text.parameters,
                text.format_version,
                SpilledBatches,
                limit_bytes,
                text.num_workers,
                of_elements=text.of_elements,
            )
        case kinds.ZONEMAP:
            return ZoneMapBuilder(dtype, parameters["rows_per_zone"])
        case _:
            return BloomFilterBuilder(parameters["number_of_items"], parameters["probability"], store)


def read_column(
    state: DatasetState,
    request: AnyRequest,
    fragment_ids: Sequence[int],
    builder: IndexBuilder,
    limit_bytes: int,
    progress: BuildProgress,
) -> Plan[None]:
    """Give a builder the values of the column in some fragments."""
    by_id = request.names_ids
    texts = None if isinstance(request, VectorRequest) else request.texts
    if texts is None:
        projection = project(state.schema, request.columns, with_row_id=by_id, with_row_address=not by_id)
    else:
        output = text_output(state.schema, texts, request.path)
        projection = Projection((output,), None).with_system(ROW_ID if by_id else ROW_ADDRESS)
    below = () if texts is None else texts.below
    options = scan_options(
        fragments=tuple(fragment_ids),
        batch_size=INTERNAL_BATCH_ROWS_MAX,
        scan_in_order=True,
        **scan_memory_options(limit_bytes),
    )
    counts = yield from load_live_counts(state, state.fragment_indexes_of(fragment_ids))
    progress.begin("load_data", sum(counts))

    def take(batch: pa.RecordBatch) -> Plan[None]:
        yield Compute(partial(_add, builder, batch, below), lambda: batch.nbytes)
        progress.add(batch.num_rows)

    yield EachInPlan(projected_batches(state, options, projection), take)
    progress.end()


def _add(builder: IndexBuilder, batch: pa.RecordBatch, below: Sequence[str]) -> None:
    values = batch.column(0)
    builder.add(member_lists(getattr(values, "storage", values), below), values_of(batch.column(1)))


def _entry(
    state: DatasetState, request: AnyRequest, fragment_ids: Sequence[int], uuid: str, files: SegmentFiles
) -> IndexMetadata:
    type_url, value = request.details()
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.UUID(uuid=UUID(uuid).bytes),
        name=request.name,
        fields=[request.field.id],
        dataset_version=state.manifest.version,
        fragment_bitmap=encode_fragment_ids(fragment_ids),
        index_version=request.index_version(stable=state.has_stable_row_ids),
        created_at=time.time_ns() // 1_000_000,
        files=files.written,
    )
    message.index_details.type_url, message.index_details.value = type_url, value
    return decode_index(message)
