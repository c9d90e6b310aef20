"""MinIO, which speaks S3.

Prepared means: the buckets `lance-io` and `lance-io-private`, and a user that may do everything in the first and
nothing in the second. Names, secrets and the policy come from the folder `minio/`, which docker-compose.yml uses, too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from servers.local_server import GoProgram, LocalServer, answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from servers.local_server import Program


def _read_variables(path: Path) -> dict[str, str]:
    """The variables of a file of lines `NAME=value`, as Docker reads it."""
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


SETUP_FOLDER = Path(__file__).resolve().parents[1] / "minio"
SETUP = _read_variables(SETUP_FOLDER / "minio.env")
ROOT_USER, ROOT_SECRET = SETUP["MINIO_ROOT_USER"], SETUP["MINIO_ROOT_PASSWORD"]
USER, USER_SECRET = SETUP["LANCE_IO_MINIO_USER"], SETUP["LANCE_IO_MINIO_SECRET"]
BUCKET, PRIVATE_BUCKET = SETUP["LANCE_IO_MINIO_BUCKET"], SETUP["LANCE_IO_MINIO_PRIVATE_BUCKET"]
REGION, POLICY = SETUP["LANCE_IO_MINIO_REGION"], SETUP["LANCE_IO_MINIO_POLICY"]
RUNNING = "LANCE_IO_TEST_S3_ENDPOINT"  # the variable that names a server which runs already


class MinioServer(LocalServer):
    """See `LocalServer`.

    data          folder of the objects; None: a temporary one that goes with the server
    certificates  folder with `public.crt`, `private.key` and `ca.crt`, by whom it was signed: the server speaks TLS
    domain        host name below which buckets have names of their own (virtual-hosted style)
    """

    title: ClassVar = "the MinIO server"
    program: ClassVar[Program] = GoProgram(
        "minio",
        "github.com/minio/minio",
        "v0.0.0-20260212201848-7aac2a2c5b7c",  # release tags of this module do not resolve; the pseudo-version does
        f"docker compose up -d --wait minio, then {RUNNING}=http://127.0.0.1:9000",
    )

    def __init__(self, data: Path | None = None, *, certificates: Path | None = None, domain: str = "") -> None:
        super().__init__()
        self._data = data
        self._certificates = certificates
        self._domain = domain

    @property
    def url_scheme(self) -> str:
        """See `LocalServer`."""
        return "http" if self._certificates is None else "https"

    @property
    def _authority(self) -> Path | None:
        return None if self._certificates is None else self._certificates / "ca.crt"

    def command(self, port: int) -> Sequence[str]:
        """See `LocalServer`."""
        data = self._data or self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        certificates = self._certificates or self.folder / "certs"
        address = ["--address", f"127.0.0.1:{port}"]
        return ["server", str(data), *address, "--certs-dir", str(certificates), "--quiet"]

    def settings(self) -> Mapping[str, str]:
        """See `LocalServer`."""
        return {
            **{name: value for name, value in SETUP.items() if name.startswith("MINIO_")},
            **({"MINIO_DOMAIN": self._domain} if self._domain else {}),
        }

    def is_up(self) -> bool:
        """See `LocalServer`."""
        return is_ready(self.endpoint, self._authority) and knows_its_users(self.endpoint, self._authority)

    def prepare(self) -> None:
        """See `LocalServer`."""
        prepare(self.endpoint, authority=self._authority)


def is_ready(endpoint: str, authority: Path | None = None) -> bool:
    """Does a server answer there? `authority` is the certificate that vouches for it."""
    return answer_of(f"{endpoint}/minio/health/ready", authority) is not None


def knows_its_users(endpoint: str, authority: Path | None = None) -> bool:
    """Has the server read its users and policies? It forgets those that are made while it first reads them.

    Asks for metrics, which the server must show to everybody.
    """
    metrics = answer_of(f"{endpoint}/minio/metrics/v3/cluster/iam", authority) or ""
    return re.search(r"^minio_cluster_iam_sync_successes [1-9]", metrics, re.MULTILINE) is not None


def prepare(
    endpoint: str, root_user: str = ROOT_USER, root_secret: str = ROOT_SECRET, authority: Path | None = None
) -> None:
    """Make the buckets and the restricted user, where they are not there yet."""
    import urllib3
    from minio import Minio, MinioAdmin
    from minio.credentials.providers import StaticProvider

    secure, host = endpoint.startswith("https://"), endpoint.split("://", 1)[1].rstrip("/")
    # a server that is ready may still refuse for a while: its users come last
    not_yet = urllib3.Retry(
        total=15, connect=5, backoff_factor=0.2, backoff_max=3, status_forcelist=[500, 502, 503, 504]
    )
    http = urllib3.PoolManager(ca_certs=None if authority is None else str(authority), retries=not_yet)
    how: dict[str, Any] = {"endpoint": host, "secure": secure, "http_client": http}
    client = Minio(access_key=root_user, secret_key=root_secret, region=REGION, **how)
    for bucket in (BUCKET, PRIVATE_BUCKET):
        if not client.bucket_exists(bucket_name=bucket):
            client.make_bucket(bucket_name=bucket)
    admin = MinioAdmin(credentials=StaticProvider(root_user, root_secret), **how)
    admin.policy_add(POLICY, policy=json.loads((SETUP_FOLDER / "policy.json").read_text()))
    admin.user_add(USER, USER_SECRET)
    admin.policy_set(POLICY, user=USER)


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which the tests, lance_io and the AWS tools find the server as the restricted user."""
    return {
        RUNNING: endpoint,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": USER_SECRET,
    }
