"""Codecs of a page's buffers, from its compression messages. No I/O, no pages, no Arrow.

`tree` decodes the messages of a page to a checked tree of small frozen values. Every node can describe itself for
people, and compile itself to a program for the kernels, which run the loops. `encode` is the reverse.
Specification: structural encodings 2.1, sections 1, 4 and 8.
"""
