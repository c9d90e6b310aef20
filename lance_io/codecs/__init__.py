"""BUFFER ⇄ BUFFER: what a page's compression messages mean, as values.

`tree` turns the messages of a page into a checked tree of small frozen values; every node can describe itself (for
people) and compile itself to a program (for the kernels, which do the loops). Pure: no I/O, no pages, no Arrow.
Specification: structural encodings 2.1, sections 1, 4 and 8.
"""
