"""CHANGES: plans that make a version, above `reads/` and below `dataset/`.

Top down; each folder imports only what stands below it:

    merge/, compaction/   merges of rows by key; fragments rewritten
    columns/              columns added, joined, cast, dropped
    join/                 keys and rows of the other side, in memory or on local disk
    edits/                deletions, updates, commits of prepared operations
    write/                rows to data files, and the version that holds them
    upkeep/               branches, tags, clones, removal of versions and tables
    operations/           operations in pylance's form, and schemas against the table's

Plans that build and merge indices belong here too, beside `compaction/`.
"""
