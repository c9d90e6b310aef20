"""Calls of classes and of small objects, for `scripts/pylance_calls.py`, which explains their names."""

from __future__ import annotations

from typing import Final

_STABLE: Final = "L.write_dataset(data, tmp + '/s', enable_stable_row_ids=True)"
_DELTA: Final = (
    f"[(s.insert(data), s.delete('a = 2'), s.update({{'t': '1'}}, where='a = 3'), s)[-1] for s in [{_STABLE}]]"
    "[0].delta(compared_against=1)"
)
_PLAN: Final = "L.optimize.Compaction.plan(new, {})"
_TASK: Final = f"{_PLAN}.tasks[0]"
_DONE: Final = f"[one.execute(new) for one in {_PLAN}.tasks][0]"
_BLOB: Final = "L.write_dataset(blobs, tmp + '/b', data_storage_version='2.1').take_blobs('b', indices=[1])[0]"
_STORE: Final = "[(open(tmp + '/x', 'wb').write(b'abc'), L.file.LanceFileSession(tmp))[1] for _ in [0]][0]"
_META: Final = f"{_STABLE}.get_fragments()[0].metadata"
_OPERATIONS: Final = {
    "Append": "L.LanceOperation.Append([])",
    "Clone": "L.LanceOperation.Clone(True, None, 1, 'x', None)",
    "Delete": "L.LanceOperation.Delete([], [0], 'a > 3')",
    "Merge": "L.LanceOperation.Merge([frag.metadata], ds.lance_schema)",
    "Overwrite": "L.LanceOperation.Overwrite(data.schema, [])",
    "Project": "L.LanceOperation.Project(ds.lance_schema)",
    "Restore": "L.LanceOperation.Restore(1)",
    "Update": "L.LanceOperation.Update(removed_fragment_ids=[0])",
    "UpdateMap": "L.LanceOperation.UpdateMap({'k': 'v'}, False)",
    "UpdateConfig": "L.LanceOperation.UpdateConfig(config_updates=L.LanceOperation.UpdateMap({'k': 'v'}, False))",
    "DataReplacementGroup": "L.LanceOperation.DataReplacementGroup(0, frag.metadata.files[0])",
    "DataReplacement": "L.LanceOperation.DataReplacement([])",
    "RewriteGroup": "L.LanceOperation.RewriteGroup([frag.metadata], [])",
    "Rewrite": "L.LanceOperation.Rewrite([], [])",
    "RewrittenIndex": "L.LanceOperation.RewrittenIndex('a', 'b', 'c', b'', 1)",
}


def _is_a(module: str, values: dict[str, str]) -> dict[str, str]:
    """For each class, whether some call gives an object of it."""
    owner = {"lance": "L", "lance.dataset": "L.dataset_module"}.get(module, module.replace("lance", "L", 1))
    return {f"{module}.{name}": f"isinstance({value}, {owner}.{name})" for name, value in values.items()}


_CLASSES: Final = {
    "Blob": "L.Blob(b'x')",
    "BlobColumn": "L.BlobColumn(pa.array([b'x'], pa.large_binary()))",
    "BlobFile": _BLOB,
    "CleanupExplanation": "new.explain_cleanup_old_versions()",
    "CleanupStats": "new.cleanup_old_versions()",
    "DataStatistics": "ds.stats.data_stats()",
    "DatasetBasePath": "L.DatasetBasePath(tmp, 'x')",
    "FieldStatistics": "ds.stats.data_stats().fields[0]",
    "FragmentMetadata": "frag.metadata",
    "LanceFragment": "frag",
    "LanceOperation": "L.LanceOperation()",
    "LanceScanner": "ds.scanner()",
    "MergeInsertBuilder": "new.merge_insert('a')",
    "Transaction": "ds.read_transaction(1)",
}
_DATASET_CLASSES: Final = {
    "Branches": "ds.branches",
    "ColumnOrdering": "L.dataset_module.ColumnOrdering('a')",
    "DataStatistics": "ds.stats.data_stats()",
    "DatasetDelta": "new.delta(1)",
    "DatasetOptimizer": "new.optimize",
    "FieldStatistics": "ds.stats.data_stats().fields[0]",
    "LanceOperation": "L.LanceOperation()",
    "LanceScanner": "ds.scanner()",
    "LanceStats": "ds.stats",
    "MergeInsertBuilder": "new.merge_insert('a')",
    "ScannerBuilder": "L.dataset_module.ScannerBuilder(ds)",
    "SqlQuery": "ds.sql('select a from dataset').build()",
    "Tags": "ds.tags",
    "Transaction": "ds.read_transaction(1)",
}
_FRAGMENT_CLASSES: Final = {
    "DataFile": "frag.metadata.files[0]",
    "DeletionFile": "frag.metadata.deletion_file",
    "FragmentMetadata": "frag.metadata",
    "FragmentSession": "frag.open_session()",
    "LanceFragment": "frag",
    "RowIdMeta": f"{_META}.row_id_meta",
    "RowDatasetVersionMeta": f"{_META}.created_at_version_meta",
}
_OTHER_CLASSES: Final = {
    **_is_a("lance.blob", {name: _CLASSES[name] for name in ("Blob", "BlobColumn", "BlobFile")}),
    **_is_a("lance.schema", {"LanceSchema": "ds.lance_schema"}),
    **_is_a(
        "lance.arrow",
        {
            "BFloat16Array": "L.arrow.bfloat16_array([1.5])",
            "BFloat16Type": "L.arrow.BFloat16Type()",
            "ImageURIArray": "L.arrow.ImageURIArray.from_uris(['x'])",
            "ImageURIType": "L.arrow.ImageURIType()",
            "ImageURIScalar": "L.arrow.ImageURIArray.from_uris(['x'])[0]",
            "EncodedImageType": "L.arrow.EncodedImageType()",
            "EncodedImageArray": "pa.ExtensionArray.from_storage(L.arrow.EncodedImageType(), pa.array([b'x']))",
        },
    ),
    **_is_a(
        "lance.file",
        {
            "ReaderResults": "L.file.LanceFileReader(written).read_all()",
            "LanceFileMetadata": "L.file.LanceFileReader(written).metadata()",
            "LanceFileStatistics": "L.file.LanceFileReader(written).file_statistics()",
            "LanceColumnMetadata": "L.file.LanceFileReader(written).metadata().columns[0]",
            "LancePageMetadata": "L.file.LanceFileReader(written).metadata().columns[0].pages[0]",
            "LanceBufferDescriptor": "L.file.LanceFileReader(written).metadata().global_buffers[0]",
            "ListResult": f"{_STORE}.list_with_delimiter()",
        },
    ),
    **_is_a(
        "lance.sampler",
        {
            "FullScanSampler": "L.sampler.FullScanSampler()",
            "FragmentSampler": "L.sampler.FullScanSampler()",
            "Sampler": "L.sampler.FullScanSampler()",
            "ShardedFixedBatchSampler": "L.sampler.ShardedFixedBatchSampler(0, 2)",
        },
    ),
    **_is_a(
        "lance.progress",
        {
            "FragmentWriteProgress": "L.progress.NoopFragmentWriteProgress()",
            "NoopFragmentWriteProgress": "L.progress.NoopFragmentWriteProgress()",
        },
    ),
    "lance.commit.CommitConflictError": "issubclass(L.commit.CommitConflictError, Exception)",
    "lance.optimize.CompactionOptions": (
        "L.optimize.Compaction.plan(new, L.optimize.CompactionOptions(target_rows_per_fragment=5)).num_tasks()"
    ),
    "lance.optimize.Compaction": f"{_PLAN}.num_tasks()",
    "lance.dataset.AutoCleanupConfig": (
        "(new.optimize.enable_auto_cleanup(L.dataset_module.AutoCleanupConfig(interval=5, older_than_seconds=60)),"
        " new.config())[1]"
    ),
}
_BLOBS: Final = {
    f"lance.blob.BlobFile.{name}": f"[{call} for f in [{_BLOB}]][0]"
    for name, call in {
        "close": "(f.close(), f.closed)[1]",
        "closed": "f.closed if isinstance(f.closed, bool) else f.closed()",
        "read": "f.read(2)",
        "read1": "f.read1(2)",
        "read_range": "f.read_range(0, 2)",
        "read_ranges": "f.read_ranges([(0, 2), (1, 1)])",
        "readable": "f.readable()",
        "readall": "f.readall()",
        "readinto": "[(f.readinto(b), bytes(b))[1] for b in [bytearray(2)]][0]",
        "seek": "(f.seek(1), f.read(1))[1]",
        "seekable": "f.seekable()",
        "size": "f.size()",
        "tell": "(f.seek(1), f.tell())[1]",
    }.items()
}
_DELTAS: Final = {
    "lance.dataset.DatasetDelta.get_deleted_row_ids": f"plain({_DELTA}.get_deleted_row_ids())",
    "lance.dataset.DatasetDelta.get_inserted_rows": f"plain({_DELTA}.get_inserted_rows().read_all()['a'])",
    "lance.dataset.DatasetDelta.get_updated_rows": f"plain({_DELTA}.get_updated_rows().read_all()['a'])",
    "lance.dataset.DatasetDelta.list_transactions": f"len({_DELTA}.list_transactions())",
}
_PLANS: Final = {
    "lance.optimize.CompactionPlan.num_tasks": f"{_PLAN}.num_tasks()",
    "lance.optimize.CompactionPlan.read_version": f"{_PLAN}.read_version",
    "lance.optimize.CompactionPlan.tasks": f"len({_PLAN}.tasks)",
    "lance.optimize.CompactionPlan.json": f"type({_PLAN}.json()).__name__",
    "lance.optimize.CompactionTask.execute": f"type({_DONE}).__name__",
    "lance.optimize.CompactionTask.fragments": f"[one.id for one in {_TASK}.fragments]",
    "lance.optimize.CompactionTask.read_version": f"{_TASK}.read_version",
    "lance.optimize.CompactionTask.json": f"type({_TASK}.json()).__name__",
    "lance.optimize.RewriteResult.metrics": f"{_DONE}.metrics.fragments_removed",
    "lance.optimize.RewriteResult.new_fragments": f"[one.num_rows for one in {_DONE}.new_fragments]",
    "lance.optimize.RewriteResult.original_fragments": f"[one.id for one in {_DONE}.original_fragments]",
    "lance.optimize.RewriteResult.read_version": f"{_DONE}.read_version",
    "lance.optimize.RewriteResult.json": f"type({_DONE}.json()).__name__",
}
_STORES: Final = {
    f"lance.file.LanceFileSession.{name}": f"[{call} for f in [{_STORE}]][0]"
    for name, call in {
        "contains": "[f.contains('x'), f.contains('y')]",
        "delete_file": "(f.delete_file('x'), f.contains('x'))[1]",
        "download_file": "(f.download_file('x', tmp + '/y'), open(tmp + '/y').read())[1]",
        "list": "f.list()",
        "list_with_delimiter": "f.list_with_delimiter().objects",
        "open_reader": "(f.upload_file(written, 'z.lance'), f.open_reader('z.lance').num_rows())[1]",
        "open_writer": "(f.open_writer('w.lance', data.schema).close(), f.contains('w.lance'))[1]",
        "read_range": "f.read_range('x', 1, 2)",
        "upload_file": "(f.upload_file(written, 'z.lance'), f.contains('z.lance'))[1]",
    }.items()
}
_ROW_IDS: Final = {
    **{
        f"lance.fragment.{name}.{method}": f"type({_META}.{attribute}.{method}()).__name__"
        for name, attribute in (("RowIdMeta", "row_id_meta"), ("RowDatasetVersionMeta", "created_at_version_meta"))
        for method in ("asdict", "json")
    },
    "lance.fragment.LanceFragment.create_from_file": (
        "[L.LanceFragment.create_from_file(f.metadata.files[0].path, new, 7).num_rows for f in new.get_fragments()]"
    ),
    "lance.fragment.DataFile.field_ids": "frag.metadata.files[0].field_ids()",
    "lance.dataset.LanceDataset.drop_index": "(indexed.drop_index('on a'), indexed.has_index)[1]",
    "lance.dataset.LanceDataset.create_scalar_index": (
        "(new.create_scalar_index('a', 'BTREE'), [(i.name, i.index_type, i.num_rows_indexed)"
        " for i in new.describe_indices()], new.count_rows('a > 3'))[1:]"
    ),
    "lance.dataset.LanceDataset.index_statistics": "indexed.index_statistics('on a')['segments']",
    "lance.dataset.LanceStats.index_stats": "indexed.stats.index_stats('on a')['segments']",
    "lance.dataset.LanceDataset.create_index_uncommitted": (
        "[(i.name, i.fields, set(i.fragment_ids), i.index_version, i.index_details)"
        " for i in [new.create_index_uncommitted('a', 'BTREE', fragment_ids=[0])]]"
    ),
    "lance.dataset.LanceDataset.merge_existing_index_segments": (
        "[set(i.fragment_ids) for i in [new.merge_existing_index_segments([new.create_index_uncommitted('a', 'BTREE',"
        " fragment_ids=[n]) for n in (0, 1)])]]"
    ),
    "lance.dataset.LanceDataset.commit_existing_index_segments": (
        "[i.num_rows_indexed for i in new.commit_existing_index_segments('x', 'a', [new.create_index_uncommitted('a',"
        " 'BTREE', fragment_ids=[1])]).describe_indices()]"
    ),
    "lance.dataset.DatasetOptimizer.optimize_indices": (
        "(indexed.insert(data), indexed.optimize.optimize_indices(), [len(i.segments) for i in"
        " indexed.describe_indices()])[2]"
    ),
    "lance.indices.IndexConfig": "vars(L.indices.IndexConfig('btree', {'zone_size': 9}))",
    "lance.IndexProgress": "L.IndexProgress('progress', 'load_data', 1, 4, 'rows').fraction",
    **{
        f"lance.progress.IndexProgress.{name}": f"L.progress.IndexProgress('progress', 'x', 1, 4, 'rows').{name}"
        for name in ("completed", "fraction", "total", "unit")
    },
    "lance.progress.IndexProgress": "L.progress.IndexProgress('progress', 'load_data', 1, 4, 'rows').fraction",
    "lance.dataset.LanceDataset.version_refs": "type(new.version_refs()).__name__",
    "lance.dataset.MergeInsertBuilder.write_mode": (
        "(new.merge_insert('a').when_matched_update_all().write_mode('rewrite_rows').execute(data), 1)[1]"
    ),
    "lance.progress.FileSystemFragmentWriteProgress.PROGRESS_EXT": (
        "L.progress.FileSystemFragmentWriteProgress.PROGRESS_EXT"
    ),
}
_ARROW: Final = {
    "lance.arrow.BFloat16Array.to_numpy": "[float(x) for x in L.arrow.bfloat16_array([1.5]).to_numpy()]",
    "lance.arrow.PandasBFloat16Array.isna": "L.arrow.PandasBFloat16Array(L.arrow.bfloat16_array([1.5, None])).isna()",
    "lance.arrow.PandasBFloat16Array.dtype": "str(L.arrow.PandasBFloat16Array(L.arrow.bfloat16_array([1.5])).dtype)",
    "lance.arrow.ImageURIScalar.as_py": "L.arrow.ImageURIArray.from_uris(['x'])[0].as_py()",
    "lance.arrow.ImageURIArray.from_array": "L.arrow.ImageURIArray.from_array(pa.array(['x'])).to_pylist()",
    "lance.arrow.ImageArray.from_array": "L.arrow.ImageArray.from_array(pa.array(['x'])).to_pylist()",
    "lance.arrow.EncodedImageScalar.as_py": (
        "pa.ExtensionArray.from_storage(L.arrow.EncodedImageType(), pa.array([b'x']))[0].as_py()"
    ),
    "lance.sampler.FullScanSampler.iter_fragments": (
        "[one.fragment_id for one in L.sampler.FullScanSampler().iter_fragments(ds)]"
    ),
    "lance.sampler.FragmentSampler.iter_fragments": (
        "[one.fragment_id for one in L.sampler.FullScanSampler().iter_fragments(ds)]"
    ),
    "lance.sampler.ShardedFragmentSampler.iter_fragments": (
        "[one.fragment_id for one in L.sampler.ShardedFragmentSampler(1, 2).iter_fragments(ds)]"
    ),
    "lance.sampler.ShardedFragmentSampler.set_epoch": "L.sampler.ShardedFragmentSampler(0, 2).set_epoch(3)",
    "lance.sampler.ShardedBatchSampler.set_epoch": "L.sampler.ShardedBatchSampler(0, 2).set_epoch(3)",
    "lance.sampler.ShardedFixedBatchSampler.set_epoch": "L.sampler.ShardedFixedBatchSampler(0, 2).set_epoch(3)",
    "lance.sampler.reservoir_sampling": "len(L.sampler.reservoir_sampling(iter(range(9)), 3))",
}

OBJECT_CALLS: Final[dict[str, str]] = {
    **_is_a("lance", _CLASSES),
    **_is_a("lance.dataset", _DATASET_CLASSES),
    **_is_a("lance.fragment", _FRAGMENT_CLASSES),
    **_OTHER_CLASSES,
    **{f"lance.dataset.LanceOperation.{name}": f"type({call}).__name__" for name, call in _OPERATIONS.items()},
    "lance.dataset.LanceOperation.BaseOperation": (
        "isinstance(L.LanceOperation.Restore(1), L.LanceOperation.BaseOperation)"
    ),
    "lance.dataset.LanceOperation.Restore": "L.LanceDataset.commit(new, L.LanceOperation.Restore(1)).count_rows()",
    "lance.dataset.LanceOperation.Delete": (
        "L.LanceDataset.commit(new, L.LanceOperation.Delete([], [0], 'a < 6'), read_version=2).count_rows()"
    ),
    "lance.dataset.LanceOperation.Append": (
        "L.LanceDataset.commit(new, L.LanceOperation.Append(L.fragment.write_fragments(data, new.uri)),"
        " read_version=2).count_rows()"
    ),
    "lance.dataset.LanceOperation.Overwrite": (
        "L.LanceDataset.commit(new, L.LanceOperation.Overwrite(data.schema,"
        " L.fragment.write_fragments(data, new.uri))).count_rows()"
    ),
    **_BLOBS,
    **_DELTAS,
    **_PLANS,
    **_STORES,
    **_ROW_IDS,
    **_ARROW,
}
