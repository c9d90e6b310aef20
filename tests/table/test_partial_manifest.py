"""A manifest in parts, and a version of some of its fragments."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_io.table.manifest.manifest import Manifest, decode_manifest
from lance_io.table.manifest.partial_manifest import (
    decode_whole,
    join_parts,
    serialized_entry,
    serialized_header,
    serialized_whole,
)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Four fragments with stable row ids, a deletion file and a config."""
    path = str(tmp_path_factory.mktemp("partial") / "t.lance")
    rows = pa.table({"a": range(40)})
    table = lance.write_dataset(rows, path, max_rows_per_file=10, enable_stable_row_ids=True)
    table.delete("a = 25")
    table.update_config({"key": "value"})
    newest = min(Path(path, "_versions").glob("*.manifest"))  # their names count backwards
    return decode_manifest(newest.read_bytes())


def test_the_whole_of_a_version_is_that_version(manifest: Manifest) -> None:
    whole = serialized_whole(manifest, 1 << 20)
    assert whole is not None
    found = decode_whole(whole)
    assert (found.version, found.config, found.schema) == (manifest.version, manifest.config, manifest.schema)
    assert list(found.fragments) == list(manifest.fragments)
    assert serialized_whole(manifest, len(whole)) == whole
    assert serialized_whole(manifest, len(whole) - 1) is None


@pytest.mark.parametrize("row_ids", [True, False])
def test_parts_make_a_version_of_their_fragments(manifest: Manifest, row_ids: bool) -> None:
    header = serialized_header(manifest, row_ids=row_ids)
    places = (2, 0)
    entries = [serialized_entry(manifest, place, row_ids=row_ids) for place in places]
    found = join_parts(header, entries, "digest")
    assert [one.id for one in found.fragments] == [manifest.fragments[place].id for place in places]
    for ours, place in zip(found.fragments, places, strict=True):
        theirs = manifest.fragments[place]
        assert (ours.files, ours.deletion_file, ours.physical_rows) == (
            theirs.files, theirs.deletion_file, theirs.physical_rows,
        )  # fmt: skip
        assert ours.row_ids == (theirs.row_ids if row_ids else None)
    assert found.has_stable_row_ids is row_ids
    assert (found.version, found.schema, found.data_version) == (
        manifest.version,
        manifest.schema,
        manifest.data_version,
    )
    assert not found.config
    assert found.transaction_file == f"{manifest.transaction_file}#digest"
    assert len(header) < len(serialized_whole(manifest, 1 << 20) or b"")
    assert manifest.has_stable_row_ids and manifest.config  # untouched
