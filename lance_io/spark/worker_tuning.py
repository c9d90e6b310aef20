"""What the option `tune_worker` changes in a process of Spark's: settings that are the process's, not ours.

    connection   what is written to Spark leaves at once (`TCP_NODELAY`)          workers
    allocator    memory that a batch has freed is kept for the next (`mallopt`)   workers
    collector    what was loaded is not looked at again (`gc.freeze`)             workers and planners

Other code in these processes, such as functions in Python of the same query, works with the same settings. So nothing
of this happens unless somebody asks for it, and nothing of the kind stands in another module.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import sys
from typing import TYPE_CHECKING, Final

from lance_io.spark.consumed import connection_to_spark
from lance_io.spark.task_context import is_daemons, this_task

if TYPE_CHECKING:
    from lance_io.spark.options import TargetOptions

KEPT_BYTES_MAX: Final = 64 << 20  # freed memory that a worker keeps; larger blocks than half of it go back at once
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h

_tuned_pid = 0
_frozen: tuple[int, int] = (0, 0)  # the process, and how many modules it had


def tune_worker(options: TargetOptions) -> None:
    """Tune the process of a task, once; nothing without the option, and outside of Spark's workers.

    What TCP holds back of the last bytes of a task waits until those before them are acknowledged, which a system that
    waits for something to answer puts off: 40 ms, in one of three small queries. And fresh memory costs a page fault
    for each 4 KiB, which takes as long as decoding into it.
    """
    global _tuned_pid
    if not options.tune_worker or _tuned_pid == os.getpid() or this_task() is None:
        return
    _tuned_pid = os.getpid()
    with connection_to_spark() as connection:
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of the GNU C library; others have nothing like it
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES_MAX // 2)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)


def freeze_loaded(options: TargetOptions) -> None:
    """Take what a process of Spark's daemon has loaded out of the garbage collector's sight, once it has loaded more.

    Nothing without the option. The daemon's processes collect garbage after every task or plan, and that takes 20 ms
    for the hundred thousand objects of modules, which never become garbage. Frozen objects are still freed when nothing
    refers to them.
    """
    global _frozen
    found = (os.getpid(), len(sys.modules))
    if not options.tune_worker or _frozen == found or not is_daemons():
        return
    _frozen = found
    gc.collect()
    gc.freeze()
