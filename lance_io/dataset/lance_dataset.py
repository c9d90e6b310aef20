"""`LanceDataset`: a table version as a `pyarrow.dataset.Dataset`."""

from __future__ import annotations

from lance_io.dataset.bases import Dataset
from lance_io.dataset.sync_dataset import SyncDataset


class LanceDataset(SyncDataset, Dataset):  # type: ignore[misc]
    """A snapshot of a table: it does not see later commits until `checkout_latest`.

    Parameters as for `lance_io.dataset`.
    """

    # pyarrow's constructor would want a C++ dataset; every inherited method is overridden, by `SyncDataset`
