"""Process-wide settings that the option `tune_worker` changes in Spark's processes.

    connection   data for Spark is sent immediately (`TCP_NODELAY`)                  workers
    allocator    memory freed by a batch is kept for the next (`mallopt`)            workers
    collector    loaded modules are excluded from garbage collection (`gc.freeze`)   workers and planners

They also affect other code in these processes, such as Python functions of the same query. So nothing is changed
without the option, and all such settings are in this module.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import sys
from typing import TYPE_CHECKING, Final

from lance_io.spark.consumed import connection_to_spark
from lance_io.spark.task_context import is_forked_by_daemon, this_task

if TYPE_CHECKING:
    from lance_io.spark.options import TargetOptions

KEPT_BYTES_MAX: Final = 64 << 20  # freed memory that a worker keeps; blocks larger than half of it are returned
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h

_tuned_pid = 0
_frozen: tuple[int, int] = (0, 0)  # the process id, and its number of modules


def tune_worker(options: TargetOptions) -> None:
    """Tune the process of a task, once. Does nothing without the option, and outside of Spark's workers.

    Without `TCP_NODELAY`, TCP delays the last bytes of a task until the earlier ones are acknowledged, and the receiver
    delays acknowledgements: 40 ms in one of three small queries. Fresh memory costs a page fault per 4 KiB, which takes
    as long as decoding into it.
    """
    global _tuned_pid
    if not options.tune_worker or _tuned_pid == os.getpid() or this_task() is None:
        return
    _tuned_pid = os.getpid()
    with connection_to_spark() as connection:
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only in the GNU C library
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES_MAX // 2)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)


def freeze_loaded(options: TargetOptions) -> None:
    """Exclude loaded modules from garbage collection, whenever a process of Spark's daemon has loaded more modules.

    Does nothing without the option. The daemon's processes collect garbage after every task or plan, which takes 20 ms
    for the hundred thousand objects of modules, although these never become garbage. Frozen objects are still freed
    when nothing refers to them.
    """
    global _frozen
    loaded = (os.getpid(), len(sys.modules))
    if not options.tune_worker or _frozen == loaded or not is_forked_by_daemon():
        return
    _frozen = loaded
    gc.collect()
    gc.freeze()
