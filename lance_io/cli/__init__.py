"""The command line: `lance-io COMMAND URI`. Thin: every command calls the packages below and prints their answers.

    main          the program: its commands in order, one-line error messages
    commands      arguments and help of each command; loads the module with its implementation when it runs
    option_texts  parses the texts of options
    uri_target    opens the dataset or file of a URI
    output        prints answers: JSON for programs, tables for people, progress
    tables        tables and texts for people, as plain values
    drawing       the same on the terminal, with Rich
    inspect, version_log, pages, rows, write_report, change, explain_report   the implementations
    change_columns, merge_sources, compact, branching
    bench, bucket_bench                                                       of `bench`, for a dataset and a bucket
    doctor        the settings of a store, and the steps of a connection to it
    sources       source files of `write` and `merge`

Everything that it needs beside the public API comes from one module, `dataset/cli_imports.py`.

A command creates a report of plain values first; `--json` prints that report, otherwise a table is drawn from it.
`main`, `commands`, `option_texts` and `tables` import nothing heavy (numpy, Arrow, stores): `--help` answers at once.
"""
