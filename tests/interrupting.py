"""Ctrl-C in a program that a test has started."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "pipeline"))

import backstage


def keep_interrupts() -> None:
    """As the pipeline does, and see to it that they come: who was started in the background ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    backstage.keep_interrupts()
