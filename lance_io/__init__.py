"""Lance files and tables, read from local disk and object stores, async first."""
