"""The command line: `lance-io COMMAND URI`. Thin: every command asks the rooms below and prints what they answer.

    main          the program: its commands in order, how failures are told
    commands      what each command takes and tells about itself; loads the module that does the work when it runs
    option_texts  reading the texts of options
    uri_target    opening what a URI names
    output        showing answers: JSON for programs, tables for people, progress
    tables        what people see, as plain values
    drawing       the same on the terminal, by Rich
    inspect, version_log, pages, rows, write_report, change, explain_report   the work of the commands
    change_columns, branching
    bench, bucket_bench                                                       of `bench`, of a dataset and of a bucket
    doctor        what a store is told, and the steps on the way to it
    sources       files that `write` takes rows from

What it needs beside the public API comes through one door, `dataset/command_door.py`.

A command makes a report of plain values first; `--json` prints that report, otherwise a table is drawn from it. What is
heavy (numpy, Arrow, stores) is out of reach of `main`, `commands`, `option_texts`, `tables`: `--help` answers at once.
"""
