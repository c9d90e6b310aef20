"""Small files whose few bytes decode to many are scanned in parts, whatever templates of other files match them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata, write_fragments

import lance_io
from lance_io import limits
from lance_io.file.scan.templates.small_files import SmallFiles
from tests.file.known_scans import Counted

if TYPE_CHECKING:
    from pathlib import Path

    from lance_io.dataset import LanceDataset

FILES = 48  # enough to be read as small files
LONG = "x" * 20_000


def repeated(text: str, num_rows: int) -> pa.Table:
    """One text in all rows: a dictionary of one item in files of versions 2.0 and 2.1, a constant in 2.2."""
    return pa.table({"t": pa.DictionaryArray.from_arrays(np.zeros(num_rows, np.int32), [text]).dictionary_decode()})


def table_of(folder: Path, version: str, parts: list[tuple[pa.Table, int]]) -> LanceDataset:
    """A table of files with these rows, each with its number of copies; of which no reader knows anything."""
    fragments = []
    for rows, num_files in parts:
        (fragment,) = write_fragments(rows, folder, data_storage_version=version)
        name, described = fragment.files[0].path, json.dumps(fragment.to_json())
        for number in range(num_files):
            shutil.copy(folder / "data" / name, folder / "data" / f"{number}-{name}")
            fragments.append(FragmentMetadata.from_json(described.replace(name, f"{number}-{name}")))
    lance.LanceDataset.commit(folder, lance.LanceOperation.Overwrite(parts[0][0].schema, fragments))
    return lance_io.dataset(folder, session=lance_io.Session())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_files_of_a_long_text_match_no_template(tmp_path: Path, counted: Counted, version: str) -> None:
    """20 kB that decode to 34 MB: no template is made of them, and that of short texts does not match them."""
    short, long = repeated("short", 200), repeated(LONG, 1700)
    assert long.nbytes > limits.SCAN_DECODED_BYTES
    batches: Any = table_of(tmp_path / "long", version, [(long, 24)]).to_batches()
    for _ in range(3):
        assert next(batches).nbytes < 68 << 20
    batches.close()
    assert counted.known == 0
    num_rows, num_long = 0, 6
    for batch in table_of(tmp_path / "both", version, [(short, 40), (long, num_long)]).to_batches():
        assert batch.nbytes < 68 << 20
        assert batch["t"][batch.num_rows - 1].as_py() in ("short", LONG)
        num_rows += batch.num_rows
    assert num_rows == 200 * 40 + 1700 * num_long
    assert counted.known == 40


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_a_job_decodes_no_further_files_beyond_its_limit(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(limits, "SCAN_DECODED_BYTES", 100_000)
    rows = repeated("y" * 300, 200)
    jobs: list[int] = []
    read = SmallFiles._read
    monkeypatch.setattr(SmallFiles, "_read", lambda scan, job: jobs.append(job.end - job.first) or read(scan, job))
    table = table_of(tmp_path, version, [(rows, FILES)])
    assert table.to_table() == pa.concat_tables([rows] * FILES)
    assert sum(jobs) == FILES
    assert 3 * len(jobs) <= FILES
    assert counted.known == 2 * len(jobs)
    assert counted.missed == 0


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_the_columns_of_a_file_share_its_limit(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(limits, "SCAN_DECODED_BYTES", 100_000)
    rows = repeated("y" * 300, 200)
    rows = rows.append_column("u", rows["t"])
    assert table_of(tmp_path, version, [(rows, FILES)]).to_table() == pa.concat_tables([rows] * FILES)
    assert counted.known == 0
