"""The Python blocks of `docs/spark.md` run as they stand, alone, each in a Spark of its own, on tables in MinIO."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from tests.spark.sessions import spark_environment, spark_settings
from tests.test_page_blocks import BLOCKS, CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import S3Server


@pytest.mark.parametrize("name", ["spark-0", "spark-1"])
@pytest.mark.timeout(900)
def test_blocks_on_spark_run(name: str, s3: S3Server, s3_uri: str, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": range(10),
            "lang": ["la", "el"] * 5,
            "score": [0.25, 0.75] * 5,
            "day": pa.array([20_500] * 10, pa.date32()),
            "text": ["arma", "menin"] * 5,
            "meta": [{"lang": "la"}] * 10,
            "vector": pa.FixedSizeListArray.from_arrays(pa.array([0.5] * 40, "f4"), 4),
        }
    )
    for table in ("warehouse/texts", "t"):
        uri = f"{s3_uri}/{table}.lance"
        for _ in range(7):
            written = lance.write_dataset(rows, uri, mode="append", storage_options=s3.options())
        written.tags.create("monday", 7)
    settings = spark_settings(tmp_path, **{"spark__master": "local[2]"})
    variables = {
        **spark_environment(tmp_path),
        "PYSPARK_SUBMIT_ARGS": " ".join([f"--conf {key}={value}" for key, value in settings.items()])
        + " pyspark-shell",
        "PYTHONPATH": str(CHECKOUT),
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": s3.user,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "AWS_REGION": s3.region,
    }
    code = BLOCKS[name].replace("s3a://bucket/", f"{tmp_path}/").replace("s3://bucket/", f"{s3_uri}/")
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    if name == "spark-0":
        assert "|  el|      35|" in done.stdout and "|  0|  la|" in done.stdout
    else:
        assert lance.dataset(f"{s3_uri}/copy.lance", storage_options=s3.options()).count_rows() == 70
