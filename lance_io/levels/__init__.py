"""Nesting and levels: converts the layers of a page to Arrow structs and lists, and back. No I/O.

`path` describes the path from a top-level field to one leaf column. `assemble` wraps a leaf in its structs and lists
and joins sibling leaves. `layout` describes batches that kernels build in one call. Kernels run the loops over
repetition and definition levels. `arrays` creates Arrow arrays over numpy memory.
Specification: structural encodings 2.1, section 2.
"""
