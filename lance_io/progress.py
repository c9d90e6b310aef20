"""What a write tells while it runs, under the module name that pylance gives it."""

from __future__ import annotations

from lance_io.dataset.write.write_progress import FragmentWriteProgress, NoopFragmentWriteProgress

__all__ = ["FragmentWriteProgress", "NoopFragmentWriteProgress"]
