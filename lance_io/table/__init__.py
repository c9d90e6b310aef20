"""METADATA, PURE: versions of a table, parsed from bytes into frozen values, and the meaning of changes.

    manifest/      a version: manifest, fragments, deletion files, row ids, index section, and their paths
    transaction/   changes: transactions and operations, conflicts, rebase, the next version, cleanups

Nothing here does I/O: callers fetch the bytes. May import `format` and below.
"""
