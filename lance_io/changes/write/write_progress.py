"""What a write tells while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata


class FragmentWriteProgress(ABC):
    """Base of what `progress=` takes: it is told of every fragment when it begins and when it is complete.

    Both are called in the thread that runs the write, in the order of the fragments.
    """

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A fragment is about to be written; its id may not be known yet."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A fragment has been written."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Hears everything and does nothing."""

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Nothing."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Nothing."""
