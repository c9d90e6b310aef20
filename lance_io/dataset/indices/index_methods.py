"""Methods of datasets that build and keep indices, synchronous and asynchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.dataset.indices.vector_methods import AsyncDatasetVectorIndices, DatasetVectorIndices
from lance_io.dataset.metadata_methods import warn_deprecated
from lance_io.lazy_names import lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.reads.run_plan import run_change

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_io.changes.edits import change_plans as changes
    from lance_io.changes.index import build_progress, create_index, index_segments, text_parts
    from lance_io.changes.index.build_progress import IndexProgress
    from lance_io.changes.index.index_config import IndexConfig
    from lance_io.changes.operations.lance_operation import Index
    from lance_io.reads.metadata import index_descriptions, index_statistics
    from lance_io.reads.metadata import index_descriptions as index_listing
    from lance_io.reads.metadata.file_listing import Progress
    from lance_io.reads.metadata.index_descriptions import IndexDescription
    from lance_io.reads.version.state import DatasetState
else:
    changes = lazy_plans("lance_io.changes.edits.change_plans")
    create_index = lazy_plans("lance_io.changes.index.create_index")
    index_segments = lazy_plans("lance_io.changes.index.index_segments")
    text_parts = lazy_plans("lance_io.changes.index.text_parts")
    build_progress = lazy_module("lance_io.changes.index.build_progress")
    index_statistics = lazy_plans("lance_io.reads.metadata.index_statistics")
    index_descriptions = lazy_plans("lance_io.reads.metadata.index_descriptions")
    index_listing = lazy_module("lance_io.reads.metadata.index_descriptions")

_SEGMENT_ONLY = "{kind} distributed indexing uses create_index_uncommitted(..., index_type={kind!r}, fragment_ids=...)"


def _refuse_fragments(index_type: Any) -> None:
    """Raise `ValueError` for a kind whose indices have no parts."""
    kind = str(index_type if isinstance(index_type, str) else getattr(index_type, "index_type", index_type)).upper()
    if kind not in ("INVERTED", "FTS"):
        raise ValueError(_SEGMENT_ONLY.format(kind=kind))


class DatasetIndices(DatasetVectorIndices):
    """Indices of `LanceDataset`."""

    def create_scalar_index(
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        progress_callback: Callable[[IndexProgress], object] | None = None,
        format_version: int | str | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> None:
        """Build an index over a column, and commit it. Both libraries use it for filters.

        The index covers the fragments of this version; later rows are scanned until `optimize.optimize_indices` adds
        them. After an error nothing has changed. If another writer compacts a covered fragment meanwhile, the index is
        built again on the newest version, at most twice.

        Args:
            column: Name or dotted path.
            index_type: "BTREE", "BITMAP", "LABEL_LIST", "NGRAM", "ZONEMAP", "BLOOMFILTER" or "INVERTED" ("FTS"), or an
                `IndexConfig`.
            name: Name of the index; None for `<column>_idx`.
            replace: Whether it replaces an index of this name.
            train: False makes an index that covers no rows yet.
            fragment_ids: For "INVERTED" only: build a part of an index over these fragments, below `index_uuid`, and
                commit nothing; `merge_index_metadata` merges parts. `create_index_uncommitted` is for all kinds.
            index_uuid: UUID of the new segment; None for a random one. All parts of an index have the same.
            progress_callback: Called with `IndexProgress` events.
            format_version: Of the files of a full text index: 2, or 3 for `block_size=256` and for source code; None
                for the lowest that fits. Ignored for other kinds.
            memory_limit: MiB of rows that the build may hold in memory; the rest goes to local disk. 256 by default.
                In pylance for full text indices only.
            progress: `progress(rows_read, rows_total)` is called repeatedly. Not in pylance.
            kwargs: For a full text index `with_position`, `block_size`, `num_workers`, and how texts become tokens: the
                parameters of `lance_io.tokenize`. Ignored for other kinds, as by pylance.

        Raises:
            KeyError: The column does not exist.
            TypeError: The column has a type that this kind does not index.
            NotImplementedError: The kind is unknown, or this release does not build it.
            OSError: The name exists with another column, or `replace` is False.
            CommitConflictError: Other writers changed the table in ways that exclude the index.
        """
        how: dict[str, Any] = {
            "replace": replace,
            "train": train,
            "uuid": index_uuid,
            "memory_limit": memory_limit,
            "progress": build_progress.BuildProgress(progress, progress_callback),
            "options": {**kwargs, "format_version": format_version},
        }
        if fragment_ids is not None:
            _refuse_fragments(index_type)
            part = text_parts.create_text_part(self._state, column, index_type, name, fragment_ids=fragment_ids, **how)
            return self._run(part)
        plan = create_index.create_index(self._state, column, index_type, name, **how)
        self._change(plan)

    def create_index_uncommitted(
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> Index:
        """Build a segment of an index over some fragments, without a commit; several processes can share the work.

        Args:
            column: Name or dotted path.
            index_type: As for `create_scalar_index`, or as for `create_index`.
            name: Name of the index; None for `<column>_idx`.
            train: False makes a segment without rows.
            fragment_ids: Ids of the fragments.
            index_uuid: UUID of the segment; None for a random one.
            memory_limit: As for `create_scalar_index`.
            progress: As for `create_scalar_index`.
            kwargs: As for `create_scalar_index`. For an index of vectors: other arguments of `create_index`, such as
                `num_partitions`; with the same `ivf_centroids` and `pq_codebook` all segments share a model.

        Returns:
            The entry of the segment, for `commit_existing_index_segments`. It can be pickled.

        Raises:
            ValueError: `fragment_ids` is missing, or names a fragment that does not exist.
        """
        plan = index_segments.create_uncommitted(
            self._state,
            column,
            index_type,
            name,
            train=train,
            fragment_ids=fragment_ids,
            uuid=index_uuid,
            memory_limit=memory_limit,
            progress=build_progress.BuildProgress(progress),
            options=kwargs,
        )
        return self._run(plan)

    def merge_index_metadata(
        self,
        index_uuid: str,
        index_type: str,
        batch_readhead: int | None = None,
        progress_callback: Callable[[IndexProgress], object] | None = None,
    ) -> None:
        """Make one segment of the parts of a full text index; commit it by `LanceOperation.CreateIndex`.

        Either library has built the parts, by `create_scalar_index` with `index_uuid` and `fragment_ids`.

        Args:
            index_uuid: UUID of the parts.
            index_type: "INVERTED"; other indices have no parts.
            batch_readhead: No effect, as in pylance.
            progress_callback: Called with `IndexProgress` events.

        Raises:
            ValueError: There are no parts, they were built with different arguments, or other parts are merged already.
            NotImplementedError: `index_type` is no kind of index.
        """
        progress = build_progress.BuildProgress(None, progress_callback)
        self._run(text_parts.merge_text_parts(self._state, index_uuid, index_type, progress))

    def merge_existing_index_segments(self, segments: list[Index]) -> Index:
        """Build one segment in place of several uncommitted ones of an index.

        The segment is built from the column, over the fragments of all, at this version.

        Args:
            segments: Segments of one index, over different fragments.

        Returns:
            The entry of the new segment.

        Raises:
            ValueError: There is no segment, two cover a fragment, or a fragment does not exist.
        """
        return self._run(index_segments.merge_segments(self._state, segments))

    def commit_existing_index_segments(self, index_name: str, column: str, segments: list[Index]) -> DatasetIndices:
        """Commit built segments as one index. They replace segments of this name that cover the same fragments.

        Args:
            index_name: Name of the index.
            column: Name or dotted path of the column.
            segments: Segments over different fragments.

        Returns:
            This dataset, at the new version.

        Raises:
            ValueError: There is no segment, two cover a fragment, or one was built for another column.
        """
        self._change(index_segments.commit_segments_as(self._state, index_name, column, segments))
        return self

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """Describe an index. Deprecated: use `stats.index_stats(index_name)`.

        Args:
            index_name: Name of the index.

        Returns:
            The statistics.

        Raises:
            KeyError: No index has this name.
        """
        warn_deprecated("index_statistics", "stats.index_stats()")
        return self._run(index_statistics.index_stats(self._state, index_name))

    def drop_index(self, name: str) -> None:
        """Remove an index, with all its segments, from the table. A cleanup deletes its files.

        Args:
            name: Name of the index, not of its column; `describe_indices` lists them.

        Raises:
            RuntimeError: No index has this name.
        """
        self._change(changes.drop_index(self._state, name))

    def describe_indices(self) -> list[IndexDescription]:
        """Describe the indices of this version and their segments, sorted by name, from the manifest.

        Returns:
            An `IndexDescription` for each index.
        """
        return self._run(index_descriptions.describe_indices(self._state))

    def list_indices(self) -> list[dict[str, Any]]:
        """List the segments of all indices. Deprecated: use `describe_indices()`.

        Returns:
            A dict for each segment.
        """
        warn_deprecated("list_indices", "describe_indices()")
        return index_listing.index_segments(self.describe_indices())


class AsyncDatasetIndices(AsyncDatasetVectorIndices):
    """Indices of `AsyncDataset`: the same names and parameters, awaitable."""

    async def create_scalar_index(
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        progress_callback: Callable[[IndexProgress], object] | None = None,
        format_version: int | str | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> None:
        """Build an index over a column, and commit it. See `LanceDataset.create_scalar_index`."""
        how: dict[str, Any] = {
            "replace": replace,
            "train": train,
            "uuid": index_uuid,
            "memory_limit": memory_limit,
            "progress": build_progress.BuildProgress(progress, progress_callback),
            "options": {**kwargs, "format_version": format_version},
        }
        if fragment_ids is not None:
            _refuse_fragments(index_type)
            part = text_parts.create_text_part(self._state, column, index_type, name, fragment_ids=fragment_ids, **how)
            await run_change(part, answers_sync=self._state.answers_sync)
            return
        plan = create_index.create_index(self._state, column, index_type, name, **how)
        await self._change(plan)

    async def create_index_uncommitted(
        self,
        column: str,
        index_type: str | IndexConfig,
        name: str | None = None,
        *,
        train: bool = True,
        fragment_ids: list[int] | None = None,
        index_uuid: str | None = None,
        memory_limit: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> Index:
        """Build a segment over some fragments. See `LanceDataset.create_index_uncommitted`."""
        state: DatasetState = self._state
        plan = index_segments.create_uncommitted(
            state,
            column,
            index_type,
            name,
            train=train,
            fragment_ids=fragment_ids,
            uuid=index_uuid,
            memory_limit=memory_limit,
            progress=build_progress.BuildProgress(progress),
            options=kwargs,
        )
        return await run_change(plan, answers_sync=state.answers_sync)

    async def merge_index_metadata(
        self,
        index_uuid: str,
        index_type: str,
        batch_readhead: int | None = None,
        progress_callback: Callable[[IndexProgress], object] | None = None,
    ) -> None:
        """Make one segment of the parts of a full text index. See `LanceDataset.merge_index_metadata`."""
        state: DatasetState = self._state
        progress = build_progress.BuildProgress(None, progress_callback)
        plan = text_parts.merge_text_parts(state, index_uuid, index_type, progress)
        await run_change(plan, answers_sync=state.answers_sync)

    async def merge_existing_index_segments(self, segments: list[Index]) -> Index:
        """Build one segment in place of several. See `LanceDataset.merge_existing_index_segments`."""
        state: DatasetState = self._state
        return await run_change(index_segments.merge_segments(state, segments), answers_sync=state.answers_sync)

    async def commit_existing_index_segments(
        self, index_name: str, column: str, segments: list[Index]
    ) -> AsyncDatasetIndices:
        """Commit built segments as one index. See `LanceDataset.commit_existing_index_segments`."""
        await self._change(index_segments.commit_segments_as(self._state, index_name, column, segments))
        return self

    async def index_statistics(self, index_name: str) -> dict[str, Any]:
        """Describe an index. Deprecated. See `LanceDataset.index_statistics`."""
        warn_deprecated("index_statistics", "stats.index_stats()")
        return await self._run(index_statistics.index_stats(self._state, index_name))

    async def drop_index(self, name: str) -> None:
        """Remove an index. See `LanceDataset.drop_index`."""
        await self._change(changes.drop_index(self._state, name))

    async def describe_indices(self) -> list[IndexDescription]:
        """Describe the indices of this version. See `LanceDataset.describe_indices`."""
        return await self._run(index_descriptions.describe_indices(self._state))

    async def list_indices(self) -> list[dict[str, Any]]:
        """List the segments of all indices. Deprecated. See `LanceDataset.list_indices`."""
        warn_deprecated("list_indices", "describe_indices()")
        return index_listing.index_segments(await self.describe_indices())
