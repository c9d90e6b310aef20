"""Call pylance's names with data in both packages and compare, for the verdict "same" of `scripts/pylance_names.py`.

A call is an expression. It can use these names, each made when a call names it:

    L            the package
    data         twelve rows of numbers, text, vectors and structs
    ds           a table of these in two fragments, one row deleted, that no call changes; `frag`: its first fragment
    new          a table like `ds` for this call alone; `indexed`: the same with a B-tree on `a`
    tmp          a folder for this call alone
    written      a file of such rows; `more`: other such rows; `blobs`: two blobs; `near`: a vector search
    built(m, v)  a builder of a scan of `ds` with its method `m` called, run
    pa, np       pyarrow, numpy

Two answers are the same if they show the same rows and values; of other objects the class is compared.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lance
import numpy as np
import pyarrow as pa

from scripts.pylance_object_calls import OBJECT_CALLS

NAME: Final = re.compile(r"(?<![.\w'])[A-Za-z]\w*")
MODULES: Final = (
    *(
        "arrow",
        "blob",
        "commit",
        "file",
        "fragment",
        "indices",
        "log",
        "optimize",
        "progress",
        "sampler",
        "schema",
        "util",
    ),
    "vector",
)
D: Final = "lance.dataset.LanceDataset"
F: Final = "lance.fragment.LanceFragment"
S: Final = "lance.dataset.LanceScanner"
B: Final = "lance.dataset.ScannerBuilder"
M: Final = "lance.dataset.MergeInsertBuilder"
_SCAN: Final = "ds.scanner(['a'], 'a > 3')"
_META: Final = "frag.metadata"
_MERGE: Final = "new.merge_insert('a').when_matched_update_all().when_not_matched_insert_all()"
_SQL: Final = "ds.sql('select a from dataset where a > 3')"


def _attributes(prefix: str, owner: str, names: str) -> dict[str, str]:
    """A call for each attribute of an object."""
    return {f"{prefix}.{name}": f"({owner}).{name}" for name in names.split()}


def _built(values: Mapping[str, str]) -> dict[str, str]:
    return {f"{B}.{name}": f"built('{name}', {given})" for name, given in values.items()}


_DATASET: Final = {
    **_attributes(
        D,
        "ds",
        "data_storage_version fragment_ids has_index has_stable_row_ids latest_version max_field_id metadata schema "
        "schema_metadata version",
    ),
    f"{D}.add_bases": "new.add_bases([L.DatasetBasePath(tmp, 'more')])",
    f"{D}.all_files": "len(list(ds.all_files().read_all().to_pylist()))",
    f"{D}.base_paths": "ds.base_paths()",
    f"{D}.branches": "ds.branches.list()",
    f"{D}.config": "ds.config()",
    f"{D}.count_rows": "[ds.count_rows(), ds.count_rows('a > 3')]",
    f"{D}.create_branch": "new.create_branch('b').count_rows()",
    f"{D}.deep_clone": "new.deep_clone(tmp + '/c', new.version).count_rows()",
    f"{D}.delete_config_keys": "(new.update_config({'x': '1'}), new.delete_config_keys(['x']), new.config())[2]",
    f"{D}.delta": "(new.insert(data), len(new.delta(1).list_transactions()))[1]",
    f"{D}.describe_indices": "ds.describe_indices()",
    f"{D}.drop_columns": "(new.drop_columns(['t']), new.to_table())[1]",
    f"{D}.explain_cleanup_old_versions": "type(new.explain_cleanup_old_versions()).__name__",
    f"{D}.get_fragment": "[ds.get_fragment(1).count_rows(), ds.get_fragment(9)]",
    f"{D}.get_fragments": "[one.count_rows() for one in ds.get_fragments()]",
    f"{D}.get_transactions": "len(ds.get_transactions())",
    f"{D}.head": "ds.head(3)",
    f"{D}.initial_storage_options": "ds.initial_storage_options",
    f"{D}.insert": "(new.insert(data), new.count_rows())[1]",
    f"{D}.io_stats_incremental": "type(ds.io_stats_incremental()).__name__",
    f"{D}.io_stats_snapshot": "type(ds.io_stats_snapshot()).__name__",
    f"{D}.lance_schema": "[one.name() for one in ds.lance_schema.fields()]",
    f"{D}.latest_storage_options": "ds.latest_storage_options()",
    f"{D}.list_indices": "ds.list_indices()",
    f"{D}.merge_insert": f"({_MERGE}.execute(data), new.count_rows())[1]",
    f"{D}.migrate_manifest_paths_v2": "(new.migrate_manifest_paths_v2(), new.count_rows())[1]",
    f"{D}.optimize": "new.optimize.compact_files().fragments_removed",
    f"{D}.read_transaction": "type(ds.read_transaction(1).operation).__name__",
    f"{D}.replace_field_metadata": "(new.replace_field_metadata('a', {'k': 'v'}), new.schema)[1]",
    f"{D}.replace_schema_metadata": "(new.replace_schema_metadata({'k': 'v'}), new.schema_metadata)[1]",
    f"{D}.restore": "(new.insert(data), new.checkout_version(1).restore(), L.dataset(new.uri).count_rows())[2]",
    f"{D}.sample": "ds.sample(5).num_rows",
    f"{D}.scanner": f"{_SCAN}.to_table()",
    f"{D}.session": "type(ds.session()).__name__.strip('_')",
    f"{D}.shallow_clone": "new.shallow_clone(tmp + '/c', new.version).count_rows()",
    f"{D}.sql": f"{_SQL}.build().to_batch_records()",
    f"{D}.stats": "ds.stats.dataset_stats()",
    f"{D}.tags": "ds.tags.list()",
    f"{D}.take": "ds.take([3, 1])",
    f"{D}.to_batches": "list(ds.to_batches(['a'], nearest=near))",
    f"{D}.to_pandas": "ds.to_pandas(['a']).values",
    f"{D}.to_table": "ds.to_table(['a'], 'a > 3', nearest=near)",
    f"{D}.tracked_files": "ds.tracked_files().read_all().num_rows",
    f"{D}.truncate_table": "(new.truncate_table(), new.count_rows())[1]",
    f"{D}.update_config": "(new.update_config({'x': '1'}), new.config())[1]",
    f"{D}.update_field_metadata": "(new.update_field_metadata({'a': {'k': 'v'}}), new.schema)[1]",
    f"{D}.update_metadata": "(new.update_metadata({'k': 'v'}), new.metadata)[1]",
    f"{D}.update_schema_metadata": "(new.update_schema_metadata({'k': 'v'}), new.schema_metadata)[1]",
    f"{D}.uri": "type(ds.uri).__name__",
    f"{D}.validate": "ds.validate()",
    f"{D}.versions": "[one['version'] for one in ds.versions()]",
}

_SCANS: Final = {
    f"{S}.analyze_plan": f"'rows_scanned=11' in {_SCAN}.analyze_plan()",
    f"{S}.count_rows": f"{_SCAN}.count_rows()",
    f"{S}.dataset_schema": f"{_SCAN}.dataset_schema",
    f"{S}.explain_plan": f"'LanceRead' in {_SCAN}.explain_plan()",
    f"{S}.head": f"{_SCAN}.head(2)",
    f"{S}.projected_schema": f"{_SCAN}.projected_schema",
    f"{S}.to_batches": f"pa.Table.from_batches({_SCAN}.to_batches())",
    f"{S}.to_pandas": f"{_SCAN}.to_pandas().values",
    f"{S}.to_reader": f"{_SCAN}.to_reader().read_all()",
    f"{S}.to_table": f"{_SCAN}.to_table()",
    f"{S}.scan_batches": f"list({_SCAN}.scan_batches())",
    f"{S}.take": f"{_SCAN}.take([1])",
    f"{B}.nearest": "built('nearest', 'v', [1.0, 2.0], 3)",
    f"{B}.full_text_search": "built('full_text_search', 'row')",
    f"{B}.to_scanner": "built('limit', 3)",
    **_built(
        {
            "apply_defaults": "{'limit': 2}",
            "batch_readahead": "2",
            "batch_size": "4",
            "batch_size_bytes": "64",
            "blob_handling": "'all_binary'",
            "columns": "['t']",
            "disable_scoring_autoprojection": "True",
            "fast_search": "True",
            "filter": "'a > 3'",
            "fragment_readahead": "2",
            "include_deleted_rows": "False",
            "io_buffer_size": "1 << 20",
            "late_materialization": "True",
            "limit": "3",
            "offset": "3",
            "order_by": "[L.dataset_module.ColumnOrdering('t', False)]",
            "prefilter": "True",
            "scan_in_order": "True",
            "scan_stats_callback": "lambda found: None",
            "strict_batch_size": "True",
            "use_scalar_index": "False",
            "use_stats": "False",
            "with_fragments": "[frag]",
            "with_row_address": "True",
            "with_row_id": "True",
        }
    ),
    "lance.dataset.SqlQuery.to_batch_records": f"{_SQL}.build().to_batch_records()",
    "lance.dataset.SqlQuery.to_stream_reader": f"{_SQL}.build().to_stream_reader().read_all().column(0)",
    **{
        f"lance.dataset.SqlQueryBuilder.{name}": f"{_SQL}.{name}({given}).build().to_batch_records()"
        for name, given in (("batch_size", "4"), ("batch_size_bytes", "64"), ("blob_handling", "'all_binary'"))
    },
    "lance.dataset.SqlQueryBuilder.build": f"{_SQL}.build().to_batch_records()",
    "lance.dataset.SqlQueryBuilder.table_name": (
        "ds.sql('select a from x').table_name('x').build().to_batch_records()"
    ),
    **{
        f"lance.dataset.SqlQueryBuilder.{name}": (
            f"ds.sql('select {column} from dataset').{name}(True).build().to_batch_records()"
        )
        for name, column in (("with_row_addr", "_rowaddr"), ("with_row_id", "_rowid"))
    },
}

_CHANGES: Final = {
    f"{M}.conflict_retries": f"({_MERGE}.conflict_retries(2).execute(data), new.count_rows())[1]",
    f"{M}.data_storage_version": f"({_MERGE}.data_storage_version('2.1').execute(data), new.count_rows())[1]",
    f"{M}.explain_plan": f"type({_MERGE}.explain_plan()).__name__",
    f"{M}.retry_timeout": f"({_MERGE}.retry_timeout(__import__('datetime').timedelta(9)).execute(data), 1)[1]",
    f"{M}.use_index": f"({_MERGE}.use_index(False).execute(data), new.count_rows())[1]",
    f"{M}.when_matched_delete": "(new.merge_insert('a').when_matched_delete().execute(data), new.count_rows())[1]",
    f"{M}.when_matched_fail": (
        "(new.merge_insert('a').when_matched_fail().when_not_matched_insert_all().execute(more), new.count_rows())[1]"
    ),
    f"{M}.when_matched_update_all": f"({_MERGE}.execute(data), new.count_rows('a = 4'))[1]",
    f"{M}.when_not_matched_by_source_delete": (
        "(new.merge_insert('a').when_matched_update_all().when_not_matched_by_source_delete()"
        ".execute(data.slice(0, 3)), new.count_rows())[1]"
    ),
    f"{M}.when_not_matched_insert_all": f"({_MERGE}.execute(more), new.count_rows())[1]",
    **{
        f"lance.dataset.Tags.{name}": call
        for name, call in {
            "create": "(new.tags.create('x', 1), [*new.tags.list()])[1]",
            "delete": "(new.tags.create('x', 1), new.tags.delete('x'), new.tags.list())[2]",
            "get_version": "(new.tags.create('x', 1), new.tags.get_version('x'))[1]",
            "list": "(new.tags.create('x', 1), [*new.tags.list()])[1]",
            "list_ordered": "(new.tags.create('x', 1), [one[0] for one in new.tags.list_ordered()])[1]",
            "replace_metadata": "(new.tags.create('x', 1), new.tags.replace_metadata('x', {'k': 'v'}))[1]",
            "update": "(new.tags.create('x', 1), new.tags.update('x', 2), new.tags.get_version('x'))[2]",
        }.items()
    },
    **{
        f"lance.dataset.Branches.{name}": f"(new.create_branch('b'), {call})[1]"
        for name, call in {
            "delete": "(new.branches.delete('b'), new.branches.list())[1]",
            "list": "[*new.branches.list()]",
            "list_ordered": "[one[0] for one in new.branches.list_ordered()]",
            "replace_metadata": "new.branches.replace_metadata('b', {'k': 'v'})",
        }.items()
    },
    "lance.dataset.DatasetOptimizer.enable_auto_cleanup": (
        "(new.optimize.enable_auto_cleanup(L.dataset_module.AutoCleanupConfig(interval=5, older_than_seconds=60)),"
        " new.config())[1]"
    ),
    "lance.dataset.DatasetOptimizer.disable_auto_cleanup": "(new.optimize.disable_auto_cleanup(), new.config())[1]",
    "lance.dataset.LanceStats.data_stats": "type(ds.stats.data_stats()).__name__",
    "lance.dataset.LanceStats.dataset_stats": "ds.stats.dataset_stats()",
    "lance.dataset.ColumnOrdering.ascending": "L.dataset_module.ColumnOrdering('a', False).ascending",
    "lance.dataset.ColumnOrdering.nulls_first": "L.dataset_module.ColumnOrdering('a').nulls_first",
    "lance.optimize.Compaction.plan": "L.optimize.Compaction.plan(new, {}).num_tasks()",
    "lance.optimize.Compaction.execute": "L.optimize.Compaction.execute(new, {}).fragments_removed",
    "lance.optimize.Compaction.commit": (
        "L.optimize.Compaction.commit(new, [one.execute(new) for one in L.optimize.Compaction.plan(new, {}).tasks])"
        ".fragments_added"
    ),
    **_attributes(
        "lance.optimize.CompactionMetrics",
        "new.optimize.compact_files()",
        "files_added files_removed fragments_added fragments_removed",
    ),
}

_FRAGMENTS: Final = {
    **_attributes(F, "frag", "fragment_id num_deletions physical_rows physical_schema schema"),
    f"{F}.count_rows": "frag.count_rows('a > 3')",
    f"{F}.data_files": "len(frag.data_files())",
    f"{F}.delete": "new.get_fragments()[0].delete('a > 3').num_rows",
    f"{F}.delete_rows": "new.get_fragments()[0].delete_rows([1]).num_deletions",
    f"{F}.deletion_file": "[type(one.deletion_file()).__name__ for one in ds.get_fragments()]",
    f"{F}.head": "frag.head(2)",
    f"{F}.metadata": "frag.metadata.num_rows",
    f"{F}.open_session": "frag.open_session().take([1, 2])",
    f"{F}.scanner": "frag.scanner(columns=['a']).to_table()",
    f"{F}.take": "frag.take([1, 2], ['a'])",
    f"{F}.to_batches": "list(frag.to_batches(columns=['a']))",
    f"{F}.to_pandas": "frag.to_pandas(columns=['a']).values",
    f"{F}.to_table": "frag.to_table(columns=['a'], filter='a > 3')",
    f"{F}.validate": "frag.validate()",
    "lance.fragment.FragmentSession.take": "frag.open_session().take([1, 2])",
    **_attributes(
        "lance.fragment.FragmentMetadata",
        _META,
        "created_at_version_meta last_updated_at_version_meta num_deletions num_rows row_id_meta",
    ),
    "lance.fragment.FragmentMetadata.data_files": f"len({_META}.data_files())",
    "lance.fragment.FragmentMetadata.deletion_file": f"type({_META}.deletion_file).__name__",
    "lance.fragment.FragmentMetadata.to_json": f"sorted({_META}.to_json())",
    "lance.fragment.FragmentMetadata.from_json": (
        f"L.FragmentMetadata.from_json(__import__('json').dumps({_META}.to_json())).num_rows"
    ),
    **_attributes(
        "lance.fragment.DataFile",
        f"{_META}.files[0]",
        "base_id fields file_major_version file_minor_version file_size_bytes",
    ),
    "lance.fragment.DataFile.path": f"{_META}.files[0].path",
    **_attributes("lance.fragment.DeletionFile", f"{_META}.deletion_file", "base_id file_type num_deleted_rows"),
    "lance.fragment.DeletionFile.asdict": f"sorted({_META}.deletion_file.asdict())",
    "lance.fragment.DeletionFile.path": f"{_META}.deletion_file.path(0).partition('/')[0]",
    "lance.fragment.DeletionFile.json": f"len({_META}.deletion_file.json()) > 9",
    "lance.fragment.DeletionFile.id": f"type({_META}.deletion_file.id).__name__",
    "lance.fragment.DeletionFile.read_version": f"{_META}.deletion_file.read_version",
}

_FILES: Final = {
    **{
        f"lance.file.LanceFileReader.{name}": f"L.file.LanceFileReader(written).{call}"
        for name, call in {
            "file_statistics": "file_statistics().columns[0].num_pages",
            "metadata": "metadata().num_rows",
            "num_rows": "num_rows()",
            "read_all": "read_all().to_table()",
            "read_range": "read_range(2, 3).to_table()",
            "take_rows": "take_rows([1, 5]).to_table()",
            "read_global_buffer": "read_global_buffer(1)",
        }.items()
    },
    "lance.file.ReaderResults.to_table": "L.file.LanceFileReader(written).read_all().to_table()",
    "lance.file.ReaderResults.to_batches": (
        "pa.Table.from_batches(L.file.LanceFileReader(written).read_all().to_batches())"
    ),
    "lance.file.LanceFileWriter.write_batch": "L.file.LanceFileReader(written).num_rows()",
    "lance.file.LanceFileWriter.close": "L.file.LanceFileReader(written).num_rows()",
    "lance.file.LanceFileWriter.add_global_buffer": "L.file.LanceFileReader(written).read_global_buffer(1)",
    "lance.file.LanceFileWriter.add_schema_metadata": "L.file.LanceFileReader(written).metadata().schema.metadata",
    "lance.file.stable_version": "L.file.stable_version()",
}

_SMALL: Final = {
    "lance.batch_udf": (
        "(new.add_columns(L.batch_udf()(lambda x: x.select(['a']).rename_columns(['c']))), new.schema)[1]"
    ),
    "lance.udf.batch_udf": "(new.add_columns(L.batch_udf()(lambda x: x.select(['a']).rename_columns(['c']))), 1)[1]",
    "lance.blob_array": "L.blob_array([b'x', None])",
    "lance.blob_field": "L.blob_field('b').name",
    "lance.blob.blob_array": "L.blob_array([b'x', None])",
    "lance.blob.blob_field": "L.blob_field('b').name",
    "lance.bytes_read_counter": "type(L.bytes_read_counter()).__name__",
    "lance.iops_counter": "type(L.iops_counter()).__name__",
    "lance.schema_to_json": "L.schema_to_json(data.schema)",
    "lance.json_to_schema": "L.json_to_schema(L.schema_to_json(data.schema))",
    "lance.schema.schema_to_json": "L.schema_to_json(data.schema)",
    "lance.schema.json_to_schema": "L.json_to_schema(L.schema_to_json(data.schema))",
    **{
        f"lance.schema.LanceSchema.{name}": f"ds.lance_schema.{call}"
        for name, call in {
            "field": "field('a').name()",
            "field_case_insensitive": "field_case_insensitive('A').name()",
            "fields": "fields()[1].name()",
            "to_pyarrow": "to_pyarrow()",
            "unenforced_clustering_key": "unenforced_clustering_key()",
            "unenforced_primary_key": "unenforced_primary_key()",
        }.items()
    },
    "lance.schema.LanceSchema.from_pyarrow": "L.schema.LanceSchema.from_pyarrow(data.schema).to_pyarrow()",
    "lance.arrow.bfloat16_array": "[float(str(x)) for x in L.arrow.bfloat16_array([1.5, None, 2.5]).to_pylist() if x]",
    "lance.util.sanitize_ts": "str(L.util.sanitize_ts(__import__('datetime').datetime(2020, 1, 1)))",
    "lance.util.td_to_micros": "L.util.td_to_micros(__import__('datetime').timedelta(1))",
    "lance.vector.vec_to_table": "L.vector.vec_to_table({'x': [1.0, 2.0]})",
    "lance.log.get_log_level": "type(L.log.get_log_level()).__name__",
    "lance.log.get_python_log_level": "type(L.log.get_python_log_level('info')).__name__",
    **{
        f"lance.blob.Blob.{name}": call
        for name, call in {
            "data": "L.Blob(b'x').data",
            "empty": "L.Blob.empty().data",
            "from_bytes": "L.Blob.from_bytes(b'x').data",
            "from_uri": "L.Blob.from_uri('file:///x').uri",
            "position": "L.Blob(b'x').position",
            "size": "L.Blob(b'x').size",
            "uri": "L.Blob(b'x').uri",
        }.items()
    },
}

CALLS: Final[dict[str, str]] = {**_DATASET, **_SCANS, **_CHANGES, **_FRAGMENTS, **_FILES, **_SMALL, **OBJECT_CALLS}


class World(dict[str, Any]):
    """The names of a call in one package; each value is made at its first use."""

    def __init__(self, package: str, template: str, folder: str) -> None:
        super().__init__(pa=pa, np=np, plain=plain, near={"column": "v", "q": [1.0, 2.0], "k": 3})
        self._package, self._template, self._folder = package, template, folder

    def knows(self, name: str) -> bool:
        """Whether a name stands for something."""
        return name in self or hasattr(self, f"_make_{name}")

    def __missing__(self, name: str) -> Any:
        self[name] = getattr(self, f"_make_{name}")()
        return self[name]

    def _make_L(self) -> Any:
        for name in MODULES:
            import_module(f"{self._package}.{name}")
        package = import_module(self._package)
        names = {name: getattr(package, name) for name in dir(package) if not name.startswith("__")}
        return SimpleNamespace(**names, dataset_module=import_module(f"{self._package}.dataset"))

    def _make_data(self) -> pa.Table:
        return rows(0)

    def _make_blobs(self) -> pa.Table:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        return pa.Table.from_arrays([pa.array([b"one", b"three"], field.type)], schema=pa.schema([field]))

    def _make_more(self) -> pa.Table:
        return rows(100)

    def _make_tmp(self) -> str:
        return tempfile.mkdtemp(dir=self._folder)

    def _make_ds(self) -> Any:
        return self["L"].dataset(self._template)

    def _make_frag(self) -> Any:
        return self["ds"].get_fragments()[0]

    def _make_new(self) -> Any:
        return self["L"].dataset(shutil.copytree(self._template, f"{self['tmp']}/table"))

    def _make_indexed(self) -> Any:
        lance.dataset(self["new"].uri).create_scalar_index("a", "BTREE", name="on a")
        return self["L"].dataset(self["new"].uri)

    def _make_written(self) -> str:
        path = f"{self['tmp']}/file.lance"
        with self["L"].file.LanceFileWriter(path, rows(0).schema) as writer:
            writer.write_batch(rows(0))
            writer.add_schema_metadata("k", "v")
            writer.add_global_buffer(b"buffer")
        return path

    def _make_built(self) -> Any:
        def run(method: str, *given: Any) -> pa.Table:
            builder = self["L"].dataset_module.ScannerBuilder(self["ds"])
            return getattr(builder, method)(*given).to_scanner().to_table()

        return run


def rows(first: int) -> pa.Table:
    """Twelve rows."""
    numbers = range(first, first + 12)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(24, dtype="f4")), 2)
    texts = [f"row {number % 5}" for number in numbers]
    return pa.table({"a": numbers, "t": texts, "v": vectors, "n": [{"x": number} for number in numbers]})


@dataclass
class Answer:
    """The result of a call: `shown`, or the error that it raised."""

    shown: Any = None
    error: Exception | None = None


class Caller:
    """Makes calls in both packages on one table; `with` closes it."""

    def __enter__(self) -> Caller:
        self._folder = tempfile.mkdtemp()
        self._template = f"{self._folder}/template"
        lance.write_dataset(rows(0), self._template, max_rows_per_file=6).delete("a = 4")
        self._shared = {package: World(package, self._template, self._folder) for package in ("lance", "lance_io")}
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)

    def answers(self, name: str) -> tuple[Answer, Answer] | None:
        """The answers of pylance and lance_io to the call of a name; None if there is no call."""
        call = CALLS.get(name)
        return None if call is None else (self._answer("lance", call), self._answer("lance_io", call))

    def verdict(self, name: str) -> tuple[str, str]:
        """The verdict on a name, "uncalled", "same", "different" or "not offered", and a remark."""
        answers = self.answers(name)
        if answers is None:
            return "uncalled", ""
        theirs, ours = answers
        if isinstance(ours.error, NotImplementedError):  # as `UnsupportedError` is, too
            if isinstance(theirs.error, NotImplementedError):
                return "same", ""  # neither has it
            return "not offered", str(ours.error).partition("\n")[0]
        if ours.error is not None and theirs.error is not None:
            return "uncalled", ""  # such a call proves nothing
        if ours.error is not None:
            return "different", f"raises {type(ours.error).__name__}: {ours.error}".partition("\n")[0]
        if theirs.error is not None:
            return "different", f"answers where pylance raises {type(theirs.error).__name__}"
        return ("same", "") if theirs.shown == ours.shown else ("different", "another answer")

    def _answer(self, package: str, call: str) -> Answer:
        world = World(package, self._template, self._folder)
        shared = self._shared[package]
        world["L"], world["ds"], world["frag"] = shared["L"], shared["ds"], shared["frag"]
        try:
            names = {name: world[name] for name in NAME.findall(call) if world.knows(name)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Answer(plain(eval(call, names)))
        except Exception as error:
            return Answer(error=error)


def plain(value: Any) -> Any:
    """A value in a form that can be compared."""
    if isinstance(value, (pa.Table, pa.RecordBatch)):
        return [str(value.schema.remove_metadata()), value.to_pylist()]
    if isinstance(value, list) and value and all(isinstance(item, pa.RecordBatch) for item in value):
        return [row for batch in value for row in batch.to_pylist()]
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return [str(item) for item in value.to_pylist()]
    if isinstance(value, pa.Schema):
        return [str(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)) or (isinstance(value, Iterable) and hasattr(value, "__next__")):
        return [plain(item) for item in value]
    return "a moment" if isinstance(value, datetime) else type(value).__name__


if __name__ == "__main__":
    with Caller() as caller:
        for each in CALLS:
            result = caller.verdict(each)
            if result[0] != "same":
                both = caller.answers(each)
                print(each, result, both)
    print(Path(__file__).name, len(CALLS))
