"""A real S3 server for tests and trials, without Docker: MinIO on 127.0.0.1.

    python minio/server.py                      start, prepare, print the environment, serve until Ctrl-C
    python minio/server.py --build-only         only make sure that there is a server to start
    python minio/server.py --prepare URL        make buckets and users on a server that runs already
    eval "$(python minio/server.py --background)"   start and return; $LANCE_IO_MINIO_PID is the process to end

The server is `minio` on PATH, else the one in the user's cache, else Go builds it there, at a pinned version, once.
Prepared means: the buckets `lance-io` and `lance-io-private`, and a user who may do everything in the first and
nothing in the second.
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PIN = "v0.0.0-20260212201848-7aac2a2c5b7c"  # release tags of this module do not resolve; the pseudo-version does
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lance-io" / "bin"
ROOT_USER, ROOT_SECRET = "minioadmin", "minioadmin1"
USER, USER_SECRET = "lance-io-user", "lance-io-secret"
BUCKET, PRIVATE_BUCKET = "lance-io", "lance-io-private"
REGION = "us-east-1"
READY_S = 30.0


class ServerError(RuntimeError):
    """There is no server, and the message says what to do about it."""


# -- the program ------------------------------------------------------------------------------------------------------


def executable() -> Path:
    """The server program; built if need be, which takes some minutes and says so on stderr."""
    if on_path := shutil.which("minio"):
        return Path(on_path)
    cached = CACHE / "minio"
    if not os.access(cached, os.X_OK):
        _build()
    return cached


def _build() -> None:
    go = shutil.which("go")
    if go is None:
        raise ServerError(
            "the tests need a MinIO server and there is none: no 'minio' on PATH, none in "
            f"{CACHE}, and no Go to build it with.\n"
            "  Go:      https://go.dev/dl/ (the build takes some minutes, once)\n"
            "  MinIO:   any 'minio' on PATH\n"
            "  Docker:  docker compose up -d --wait, then LANCE_IO_TEST_S3_ENDPOINT=http://127.0.0.1:9000"
        )
    print(f"building the MinIO server {PIN} into {CACHE}: some minutes, once", file=sys.stderr, flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:  # named at the end, so that half a build is never found
        command = [go, "install", "-ldflags", "-s -w", f"github.com/minio/minio@{PIN}"]
        done = subprocess.run(command, env={**os.environ, "GOBIN": folder, "GOFLAGS": ""}, check=False)
        if done.returncode:
            raise ServerError(f"building the MinIO server failed: {shlex.join(command)} ended with {done.returncode}")
        os.replace(Path(folder) / "minio", CACHE / "minio")


# -- the process ------------------------------------------------------------------------------------------------------


class MinioServer:
    """A server of our own on a free port; a context manager.

    data          folder of the objects; None: a temporary one that goes with the server
    certificates  folder with `public.crt`, `private.key` and `ca.crt`, by whom it was signed: the server speaks TLS
    domain        host name below which buckets have names of their own (virtual-hosted style)
    """

    def __init__(self, data: Path | None = None, *, certificates: Path | None = None, domain: str = "") -> None:
        self._data = data
        self._certificates = certificates
        self._domain = domain
        self._temporary: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    @property
    def pid(self) -> int:
        """Of the server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> MinioServer:
        """Start, wait until it serves, prepare it. Raises `ServerError` with the server's own words."""
        program = executable()
        self._temporary = tempfile.mkdtemp(prefix="lance-io-minio-")
        atexit.register(self.stop)
        for attempts_left in (2, 1, 0):  # somebody may take the free port before the server does
            try:
                self._start_on(program, _free_port())
                break
            except ServerError:
                self._end_process()
                if not attempts_left:
                    self.stop()
                    raise
        prepare(self.endpoint, authority=self._authority)
        return self

    @property
    def _authority(self) -> Path | None:
        return None if self._certificates is None else self._certificates / "ca.crt"

    def _start_on(self, program: Path, port: int) -> None:
        assert self._temporary is not None
        data = self._data or Path(self._temporary) / "data"
        data.mkdir(parents=True, exist_ok=True)
        log = Path(self._temporary) / "log"
        settings = {
            "MINIO_ROOT_USER": ROOT_USER,
            "MINIO_ROOT_PASSWORD": ROOT_SECRET,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",  # for `knows_its_users`
            **({"MINIO_DOMAIN": self._domain} if self._domain else {}),
        }
        certificates = self._certificates or Path(self._temporary) / "certs"
        command = [
            str(program),
            "server",
            str(data),
            "--address",
            f"127.0.0.1:{port}",
            "--certs-dir",
            str(certificates),
            "--quiet",
        ]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.endpoint = f"{'http' if self._certificates is None else 'https'}://127.0.0.1:{port}"
        deadline = time.monotonic() + READY_S
        while not (is_ready(self.endpoint, self._authority) and knows_its_users(self.endpoint, self._authority)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"the MinIO server does not come up:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process and remove its data; harmless a second time."""
        atexit.unregister(self.stop)
        self._end_process()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def leave_running(self) -> None:
        """Do not stop it when this program ends."""
        atexit.unregister(self.stop)

    def __enter__(self) -> MinioServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def is_ready(endpoint: str, authority: Path | None = None) -> bool:
    """Does a server answer there? `authority` is the certificate that vouches for it."""
    return _answer(f"{endpoint}/minio/health/ready", authority) is not None


def knows_its_users(endpoint: str, authority: Path | None = None) -> bool:
    """Has the server read its users and policies? It forgets those that are made while it first reads them.

    Asks for metrics, which the server must show to everybody.
    """
    metrics = _answer(f"{endpoint}/minio/metrics/v3/cluster/iam", authority) or ""
    return re.search(r"^minio_cluster_iam_sync_successes [1-9]", metrics, re.MULTILINE) is not None


def _answer(url: str, authority: Path | None) -> str | None:
    """What the server says there; None without an answer or with a refusal."""
    trust = None if authority is None else ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(url, timeout=2, context=trust) as answer:
            return str(answer.read(), "utf-8")
    except (urllib.error.URLError, OSError):
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- what is in it ----------------------------------------------------------------------------------------------------


def prepare(
    endpoint: str, root_user: str = ROOT_USER, root_secret: str = ROOT_SECRET, authority: Path | None = None
) -> None:
    """Make the buckets and the restricted user, where they are not there yet."""
    import urllib3
    from minio.credentials.providers import StaticProvider

    from minio import Minio, MinioAdmin

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
    resources = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
    statement = {"Effect": "Allow", "Action": ["s3:*"], "Resource": resources}
    admin.policy_add("lance-io-one-bucket", policy={"Version": "2012-10-17", "Statement": [statement]})
    admin.user_add(USER, USER_SECRET)
    admin.policy_set("lance-io-one-bucket", user=USER)


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which the tests, lance_io and the AWS tools find the server as the restricted user."""
    return {
        "LANCE_IO_TEST_S3_ENDPOINT": endpoint,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": USER_SECRET,
    }


def _print_environment(extra: dict[str, str], endpoint: str) -> None:
    for name, value in {**environment(endpoint), **extra}.items():
        print(f"export {name}={shlex.quote(value)}")
    sys.stdout.flush()


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description="MinIO on 127.0.0.1, for tests and trials")
    parser.add_argument("--build-only", action="store_true", help="make sure that there is a server, start nothing")
    parser.add_argument("--prepare", metavar="URL", help="make buckets and users on a server that runs already")
    parser.add_argument("--background", action="store_true", help="leave the server running")
    parser.add_argument("--data", type=Path, help="folder for the objects (default: a temporary one)")
    arguments = parser.parse_args()
    try:
        if arguments.build_only:
            executable()
            return
        if arguments.prepare:
            prepare(arguments.prepare)
            _print_environment({}, arguments.prepare)
            return
        server = MinioServer(arguments.data).start()
    except ServerError as error:
        sys.exit(f"minio/server.py: {error}")
    if arguments.background:
        server.leave_running()
        _print_environment({"LANCE_IO_MINIO_PID": str(server.pid)}, server.endpoint)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _print_environment({}, server.endpoint)
    print(f"# {BUCKET} is s3://{BUCKET}/; Ctrl-C stops the server", file=sys.stderr)
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


if __name__ == "__main__":
    main()
