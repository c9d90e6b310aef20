"""METADATA, PURE: what a version of a table is made of, from bytes to frozen values, and what changes mean.

    manifest/      a version: manifest, fragments, deletion files, row ids, index section, and where they are
    transaction/   changes: transactions and operations, conflicts, rebase, the version that comes of them, cleanups

Whoever calls these functions has fetched the bytes; nothing here does I/O. May import `format` and below.
"""
