"""Scans of files: prefetch and decode pages, and cut batches from them in row order."""
