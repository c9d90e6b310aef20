"""CHANGES: plans that commit versions, above `reads/` and below `dataset/`.

Top down; each folder imports only those below it:

    merge/, compaction/   merges of rows by key; compaction of fragments
    index/                building and keeping scalar indices
    columns/              adding, joining, casting and dropping columns
    join/                 keys and rows of a source, in memory or on local disk
    edits/                deletes, updates, commits of prepared operations
    write/                rows to data files, and the version that holds them
    upkeep/               branches, tags, clones, removal of versions and tables
    operations/           operations in pylance's form, and checks of schemas
"""
