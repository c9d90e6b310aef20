"""Progress of a write, fragment by fragment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_io.reads.metadata.fragment_metadata import FragmentMetadata


class FragmentWriteProgress(ABC):
    """Base class for the argument `progress` of writes.

    A write calls both methods for each fragment, in the thread that runs the write and in the order of the fragments.
    """

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Called before a fragment is written.

        Args:
            fragment: The fragment, without files; its id may not be known yet.
            kwargs: Reserved.
        """

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Called when a fragment has been written.

        Args:
            fragment: The fragment with its files.
            kwargs: Reserved.
        """


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """A progress that does nothing."""

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing. See `FragmentWriteProgress.begin`."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing. See `FragmentWriteProgress.complete`."""
