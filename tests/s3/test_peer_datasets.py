"""Every table of the shared collection, copied to S3, against its recorded content, filters included.

The collection's own checker runs with a stand-in for the module under test that opens the copies: plainly, or through
`AsyncDataset` for what that offers.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lance_io
from lance_io import runtime
from lance_io.file import AsyncFileReader, LanceFileReader
from lance_io.store.url import resolve_uri

if TYPE_CHECKING:
    from tests.servers import S3Server

PEER = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "peer-datasets"
CASES = [f"{part}/{folder.name}" for part in ("generated", "historical") for folder in sorted((PEER / part).iterdir())]
FILES = [case for case in CASES if "loose_file" in case]
WITHOUT_DATA = "historical/0.5.9--dataset_with_fragments"  # manifests only: nothing to check
TABLES = [case for case in CASES if case not in (*FILES, WITHOUT_DATA)]


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_datasets", PEER / "check_datasets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def upload(root: Path, uri: str, options: dict[str, str]) -> None:
    """Copy a file, or a folder with everything below it."""
    location = resolve_uri(uri, options)

    paths = [path for path in root.rglob("*") if path.is_file()] or [root]
    keys = [location.path if path == root else f"{location.path}/{path.relative_to(root)}" for path in paths]
    contents = [path.read_bytes() for path in paths]

    async def put_all() -> None:
        await asyncio.gather(*(location.store.put(key, content) for key, content in zip(keys, contents, strict=True)))
        await location.store.aclose()

    runtime.run(put_all())


class ThroughAsync:
    """A `LanceDataset` whose reading methods go through `AsyncDataset`, each on a loop of its own."""

    def __init__(self, table: lance_io.LanceDataset) -> None:
        self._sync = table
        self._async = lance_io.AsyncDataset.of(table)

    def __getattr__(self, name: str) -> Any:
        if name not in ("to_table", "count_rows", "take"):
            return getattr(self._sync, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            return asyncio.run(getattr(self._async, name)(*arguments, **keywords))

        return call


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("case", TABLES)
def test_tables(case: str, face: str, checker: ModuleType, s3: S3Server, s3_uri: str) -> None:
    folder = PEER / case
    upload(folder / "data.lance", f"{s3_uri}/data.lance", s3.options())

    def dataset(uri: str, **keywords: Any) -> Any:
        assert uri == str(folder / "data.lance")
        table = lance_io.dataset(f"{s3_uri}/data.lance", storage_options=s3.options(), **keywords)
        return table if face == "sync" else ThroughAsync(table)

    report = checker.Report(2)
    expected = json.loads((folder / "expected.json").read_text())
    checker.check_dataset(SimpleNamespace(dataset=dataset), folder, expected, report)
    assert report.lines == []
    assert report.ok == report.total > 0


@pytest.mark.parametrize("case", FILES)
async def test_files(case: str, s3: S3Server, s3_uri: str) -> None:
    folder = PEER / case
    uri = f"{s3_uri}/data.lance"
    await asyncio.to_thread(upload, folder / "data.lance", uri, s3.options())
    expected = pa.ipc.open_file(folder / "v1.arrow").read_all()
    plain = LanceFileReader(uri, s3.options())
    assert plain.read_all().to_table().equals(expected)
    assert plain.take_rows([0, 99, 399]).to_table().equals(expected.take([0, 99, 399]))
    async with AsyncFileReader(uri, s3.options()) as reader:
        assert await reader.read_range(0, reader.num_rows()) == expected
        assert pa.table(await reader.take_rows([0, 99, 399])) == expected.take([0, 99, 399])


def test_there_are_cases() -> None:
    assert (len(TABLES), len(FILES)) == (52, 3)
