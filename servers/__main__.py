"""The command of the servers; see `servers/__init__.py`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from servers import azurite, fake_gcs, minio, versity
from servers.local_server import ServerError

if TYPE_CHECKING:
    from types import ModuleType

    from servers.local_server import LocalServer

# The server of each name, and its module, which has `prepare`, `environment` and the name of a bucket.
SERVERS: dict[str, tuple[type[LocalServer], ModuleType]] = {
    "minio": (minio.MinioServer, minio),
    "versity": (versity.VersityServer, versity),
    "gcs": (fake_gcs.FakeGcsServer, fake_gcs),
    "azure": (azurite.AzuriteServer, azurite),
}


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m servers", description="servers on 127.0.0.1, for tests and trials")
    parser.add_argument("server", choices=SERVERS, nargs="?", help="which one (of --build-only: all, by default)")
    parser.add_argument("--build-only", action="store_true", help="make sure that there is a server, start nothing")
    parser.add_argument("--prepare", metavar="URL", help="make what is in it on a server that runs already")
    parser.add_argument("--background", action="store_true", help="leave the server running")
    parser.add_argument("--data", type=Path, help="MinIO: folder for the objects (default: a temporary one)")
    arguments = parser.parse_args()
    name: str | None = arguments.server
    try:
        if arguments.build_only:
            for kind, _ in SERVERS.values() if name is None else [SERVERS[name]]:
                kind.program.find()
            return
        if name is None:
            parser.error(f"which server? one of {', '.join(SERVERS)}")
        kind, module = SERVERS[name]
        if arguments.prepare:
            module.prepare(arguments.prepare)
            _print_variables(module.environment(arguments.prepare))
            return
        server = minio.MinioServer(arguments.data) if kind is minio.MinioServer else kind()
        server.start()
    except ServerError as error:
        sys.exit(f"python -m servers: {error}")
    variables = module.environment(server.endpoint)
    if arguments.background:
        server.leave_running()
        _print_variables({**variables, f"LANCE_IO_{name.upper()}_PID": str(server.pid)})
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _print_variables(variables)
    print(f"# the bucket is {module.BUCKET}; Ctrl-C stops the server", file=sys.stderr)
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _print_variables(variables: dict[str, str]) -> None:
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
