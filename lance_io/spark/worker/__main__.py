"""The process that the JVM starts: `python -m lance_io.spark.worker`.

in    {"protocol": 1, "jar": "0.1.0", "token": "...", "cpus": 4}      one line; then nothing until the JVM ends
out   {"protocol": 1, "package": "0.1.0", "socket": "/tmp/.../s"}     or "port", or "error"; then nothing
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from lance_io import __version__, runtime
from lance_io.lazy_names import lazy_module
from lance_io.spark.worker.jvm_connections import serve
from lance_io.spark.worker.listening import Listener, remove_abandoned

if TYPE_CHECKING:
    from lance_io.spark.worker import worker_operations
else:  # loaded after the answer to the JVM, which waits for it
    worker_operations = lazy_module("lance_io.spark.worker.worker_operations")

PROTOCOL: Final = 1
HELLO_BYTES_MAX: Final = 1 << 16


def main() -> None:
    """Serve one JVM until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the JVM decides
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to the log
    hello = _read_hello()
    mine = {"protocol": PROTOCOL, "package": __version__}
    if hello.get("protocol") != PROTOCOL or hello.get("jar") != __version__:
        _say(answers, mine)  # the JVM names both versions
        return
    remove_abandoned()
    listener = Listener.open()
    threading.Thread(target=_end_with_jvm, args=(listener,), name="lance_io-jvm", daemon=True).start()
    runtime.use_cpus(int(hello["cpus"]))
    _say(answers, {**mine, **listener.address})
    serve(listener.socket, str(hello["token"]), lambda connection, request: worker_operations.run(connection, request))


def _read_hello() -> dict[str, Any]:
    """The first line, without reading beyond it."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < HELLO_BYTES_MAX:
        byte = os.read(0, 1)
        if not byte:
            sys.exit("the JVM ended before it said its versions")
        line += byte
    hello: dict[str, Any] = json.loads(line)
    return hello


def _say(answers: int, message: dict[str, Any]) -> None:
    os.write(answers, json.dumps(message).encode() + b"\n")
    os.close(answers)


def _end_with_jvm(listener: Listener) -> None:
    """Wait until the JVM has closed its end, by ending or by intention, and end at once."""
    while os.read(0, 4096):
        pass
    listener.remove()
    os._exit(0)  # requests under way have no one left to answer to


if __name__ == "__main__":
    main()
