"""Writing data files: rows to pages, pages to bytes, bytes to the store."""
