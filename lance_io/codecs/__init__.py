"""Codecs of a page's buffers, from its compression messages, and of bitmaps. No I/O, no pages, no Arrow.

`tree` decodes the messages of a page to a checked tree of small frozen values. Every node can describe itself for
people, and compile itself to a program for the kernels, which run the loops. `encode` is the reverse. `roaring` holds
sets of 32-bit numbers, in manifests, deletion files and index files.
Specification: structural encodings 2.1, sections 1, 4 and 8.
"""
