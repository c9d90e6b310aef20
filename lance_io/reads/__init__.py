"""AN OPEN VERSION AND ITS ROWS: plans that read a table, below `changes/` and `dataset/`.

Top down; each folder imports only folders below it:

    open_version   from a URI to the state of a version
    properties     properties of a version that need no request
    keys/          rows by the values of an indexed column
    scan/          scans: options, plan, pipeline, batches
    index/         indices: which of them answers a filter, and with which rows
    takes/         rows by position, blobs as files
    checks/        validation of a version and of its blobs
    blobs/         descriptions of blobs, and their bytes
    metadata/      fragments, schema, statistics and files of a version, as public values
    rows/          row arithmetic, system columns, deletions, row ids
    run_plan       the drivers of plans: in the caller's thread, or on the engine's loop
    version/       the state of a version, the session, keys of objects, column lists

Plans of index searches belong here too, beside `scan/`.
"""
