"""SCANS of files: pages read and decoded ahead, batches cut from them in row order."""
