"""The command line: `lance-io COMMAND URI`. Thin: every command asks the rooms below and prints what they answer.

    main      the program: its commands, how failures are told
    options   arguments and options that commands share
    target    opening what a URI names
    output    tables for people, JSON for programs, progress
    sources   files that `write` takes rows from
    others    one module per group of commands

A command makes a report of plain values first; `--json` prints that report, otherwise a table is drawn from it. What is
heavy (numpy, Arrow, stores) is imported inside the commands, so that `--help` answers at once.
"""
