"""Azurite, which speaks Azure's blob storage; npm installs it.

Prepared means: the containers `lance-io` and `lance-io-private` of the account that every Azurite knows.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from servers.local_server import CACHE, LocalServer, ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from servers.local_server import Program

# The account of Azure's emulators, the same everywhere; it is no secret.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
BUCKET, PRIVATE_BUCKET = "lance-io", "lance-io-private"
RUNNING = "LANCE_IO_TEST_AZURE_ENDPOINT"  # the variable that names a server which runs already
_VERSION = "2023-11-03"  # of the protocol


@dataclass(frozen=True)
class NpmProgram:
    """A program that npm installs, into a folder of its own in the user's cache.

    name     of its executable
    package  of the registry
    version  pinned
    instead  another way to such a server, as a line of a message
    """

    name: str
    package: str
    version: str
    instead: str

    def find(self) -> Path:
        """See `Program`."""
        if on_path := shutil.which(self.name):
            return Path(on_path)
        folder = CACHE.parent / f"{self.package}-{self.version}"
        if not folder.exists():
            self._install(folder)
        return folder / "node_modules" / ".bin" / self.name

    def _install(self, folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise ServerError(
                f"the tests need {self.name} and there is none: not on PATH, not in {folder}, and no npm.\n"
                "  Node.js: https://nodejs.org/ (version 20 or newer; the installation takes a minute, once)\n"
                f"  PATH:    any '{self.name}'\n"
                f"  Docker:  {self.instead}"
            )
        print(f"installing {self.package} {self.version} into {folder}: a minute, once", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:  # named at the end, so that half is never found
            asked = f"{self.package}@{self.version}"
            command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", made, asked]
            done = subprocess.run(command, stdout=sys.stderr, check=False)
            if done.returncode:
                raise ServerError(f"installing {asked} failed: {shlex.join(command)} ended with {done.returncode}")
            try:
                os.rename(made, folder)
            except OSError:
                if not folder.exists():  # as another process was faster
                    raise


class AzuriteServer(LocalServer):
    """See `LocalServer`. Objects are in its memory.

    certificates  folder with `public.crt`, `private.key` and `ca.crt`, by whom it was signed: the server speaks TLS,
                  and takes tokens of Entra that anybody signed
    """

    title: ClassVar = "Azurite"
    program: ClassVar[Program] = NpmProgram(
        "azurite-blob",
        "azurite",
        "3.35.0",
        f"docker compose up -d --wait azure, then {RUNNING}=http://127.0.0.1:10000",
    )

    def __init__(self, certificates: Path | None = None) -> None:
        super().__init__()
        self._certificates = certificates

    @property
    def url_scheme(self) -> str:
        """See `LocalServer`."""
        return "http" if self._certificates is None else "https"

    @property
    def _authority(self) -> Path | None:
        return None if self._certificates is None else self._certificates / "ca.crt"

    def command(self, port: int) -> Sequence[str]:
        """See `LocalServer`."""
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
        if self._certificates is None:
            return [*where, *quiet]
        pair = ["--cert", str(self._certificates / "public.crt"), "--key", str(self._certificates / "private.key")]
        return [*where, *quiet, *pair, "--oauth", "basic"]

    def is_up(self) -> bool:
        """See `LocalServer`."""
        return is_ready(self.endpoint, self._authority)

    def prepare(self) -> None:
        """See `LocalServer`."""
        prepare(self.endpoint, self._authority)


def is_ready(endpoint: str, authority: Path | None = None) -> bool:
    """Does a server answer there, be it with a refusal? `authority` is the certificate that vouches for it."""
    try:
        _send("GET", f"{endpoint}/{ACCOUNT}?comp=list", authority)
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def prepare(endpoint: str, authority: Path | None = None) -> None:
    """Make the containers, where they are not there yet."""
    for container in (BUCKET, PRIVATE_BUCKET):
        try:
            _send("PUT", f"{endpoint}/{ACCOUNT}/{container}?restype=container", authority)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:  # it is there
                    raise


def _send(method: str, url: str, authority: Path | None) -> None:
    """A request without a body, signed with the account's key."""
    import ssl

    path, _, query = url.split("://", 1)[1].partition("/")[2].partition("?")
    named = "".join(f"\n{name}:{value}" for name, value in sorted(pair.split("=") for pair in query.split("&")))
    date = formatdate(usegmt=True)
    nothing = "\n" * 11  # standard headers, none of which is sent
    to_sign = f"{method}\n{nothing}x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{ACCOUNT}/{path}{named}"
    digest = hmac.digest(base64.b64decode(ACCOUNT_KEY), to_sign.encode(), hashlib.sha256)
    signature = base64.b64encode(digest).decode()
    headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    asked = urllib.request.Request(url, method=method, headers=headers)
    trust = None if authority is None else ssl.create_default_context(cafile=authority)
    urllib.request.urlopen(asked, timeout=10, context=trust).close()


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which the tests, lance_io and pylance find the server, as its owner."""
    return {
        RUNNING: endpoint,
        "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{ACCOUNT}",
        "AZURE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
    }
