"""Ctrl-C in a program that a test has started."""

from __future__ import annotations

import signal
import sys

AGAIN_S = 0.05


def keep_interrupts() -> None:
    """See to it that no interrupt is lost.

    A program that was started in the background ignores them. And Python drops those that come up in a destructor or
    in the callback of a weak reference: they are raised again a moment later.
    """

    def report(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(dropped)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = report
