"""Names of storage options that nobody knows are told, once; others never."""

from __future__ import annotations

import re
import warnings
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lance_io
from lance_io.commit.table_location import DATABASE_ENDPOINT_OPTIONS
from lance_io.store import known_options
from lance_io.store.azure import container_options
from lance_io.store.azure.container_options import parse_azure
from lance_io.store.cloud import client_options
from lance_io.store.gcs import gcs_options
from lance_io.store.gcs.gcs_options import parse_gcs
from lance_io.store.s3 import bucket_options, oss_options
from lance_io.store.s3.bucket_options import parse_s3

if TYPE_CHECKING:
    from tests.servers import S3Server

KEY = b64encode(bytes(32)).decode()
READ = r'source\.(?:text|switch|seconds|whole_number)\("(\w+)"'
MODULES = (bucket_options, client_options, container_options, gcs_options)


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_options, "_warned", set())


def test_every_name_that_is_read_is_known() -> None:
    read = {name for module in MODULES for name in re.findall(READ, Path(str(module.__file__)).read_text())}
    for aliases in (bucket_options._ALIASES, container_options._ALIASES, gcs_options._ALIASES):
        read |= {name for names in aliases.values() for name in names}
    read |= {name for names, _ in oss_options._NAMES.values() for name in names}
    assert read - known_options.KNOWN == set()
    document = (Path(__file__).resolve().parents[2] / "docs" / "clouds.md").read_text()
    assert "timeout" in read and len(read) > 100 and "aws_role_arn" in document


def test_every_name_that_a_store_asks_for_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever way it goes there: what each store asks `OptionSource` for, by all of its names, and as a variable."""
    asked: set[str] = set()
    ask = client_options.OptionSource.text

    def text(source: client_options.OptionSource, name: str) -> str | None:
        asked.update(source._aliases.get(name, (name,)))
        return ask(source, name)

    monkeypatch.setattr(client_options.OptionSource, "text", text)
    role = {"aws_role_arn": "x", "aws_web_identity_token_file": "x"}
    parse_s3("bucket", {**role, "aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": KEY}, {})
    parse_s3("bucket", {"aws_endpoint": "https://x"}, {})
    parse_azure("box", {"account_name": "x", "use_emulator": "true", "account_key": KEY}, {})
    parse_azure("box", {"account_name": "x"}, {})
    parse_gcs("bucket", {}, {})
    asked |= {*DATABASE_ENDPOINT_OPTIONS}
    assert len(asked) > 150 and asked - known_options.KNOWN == set()
    variables = {"AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"}
    variables |= {f"AWS_ENDPOINT_URL_{service}" for service in ("S3", "STS", "DYNAMODB")}
    assert {name.lower() for name in variables} <= known_options.KNOWN
    assert {name.lower().removeprefix("aws_") for name in variables} <= known_options.KNOWN


@pytest.mark.parametrize(
    ("first", "last", "others"),
    [
        ("allow_http", "user_agent", ""),
        ("aws_access_key_id", "aws_sse_customer_key_base64", ""),
        ("google_service_account", "google_skip_signature", ""),
        ("azure_storage_account_key", "azure_storage_encryption_key", ""),
        ("oss_endpoint", "oss_security_token", ""),
        ("lance_aimd_initial_rate", "lance_aimd_max_backoff_ms", "lance_aimd_"),
        ("cos_endpoint", "cos_enable_versioning", "cos_"),
        ("tos_endpoint", "tos_region", "tos_"),
        ("hf_revision", "hf_enable_resolve_cache", "hf_"),
    ],
)
def test_every_name_of_pylance_is_known(first: str, last: str, others: str) -> None:
    """Its library holds the names of each kind one behind the other, without anything between."""
    (library,) = Path(lance.__file__).parent.glob("lance*.so")
    run = re.search(rf"{first}[a-z0-9_]{{0,2000}}?{last}".encode(), library.read_bytes())
    assert run is not None
    rest = run[0].decode()
    if others:
        names = [f"{others}{name}" for name in rest.split(others)[1:]]
    else:
        ends = [{rest}]  # what is left behind the names so far, however they are cut
        for left in ends:
            shorter = {one.removeprefix(name) for one in left for name in known_options.KNOWN if one.startswith(name)}
            if shorter:
                ends.append(shorter)
        assert any("" in left for left in ends), min(ends[-1], key=len)
        names = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known_options.warn_unknown(names)
    assert len(names) > 1 or not others


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_what_nobody_knows_is_told_once(place: str, s3: S3Server, s3_uri: str, tmp_path: Path) -> None:
    uri, options = (s3_uri, s3.options()) if place == "s3" else (str(tmp_path / "t.lance"), {})
    rows = pa.table({"a": [1]})
    with pytest.warns(UserWarning) as told:
        lance_io.write_dataset(rows, uri, storage_options={**options, "AWS_Regoin": "planted", "qqqq": "x"})
    texts = [str(one.message) for one in told]
    assert len(texts) == 2 and "planted" not in "".join(texts)
    assert "storage option 'aws_regoin' is not known, and has no effect; did you mean 'aws_region'?" in texts
    assert "storage option 'qqqq' is not known, and has no effect" in texts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = {**options, "aws_regoin": "planted"}
        assert lance_io.dataset(uri, storage_options=again).count_rows() == 1


def test_others_are_not_told(tmp_path: Path) -> None:
    """Of other schemes, of pylance's alone, headers."""
    options = {
        "aws_region": "x", "account_key": "x", "google_base_url": "x", "oss_endpoint": "x", "http2_only": "true",
        "pool_idle_timeout": "5s", "aws_imdsv1_fallback": "true", "azure_fabric_workload_host": "x", "headers.x": "y",
        "expires_at_millis": "1", "dynamodb_endpoint": "x", "durability": "none", "latency_ms": "5",
        "hf_token": "x", "cos_secret_id": "x", "tos_region": "x", "goosefs_root": "x", "lance_aimd_max_retries": "5",
        "disable_system_certificates": "false", "azure_credential_type": "auto",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lance_io.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t.lance"), storage_options=options)
