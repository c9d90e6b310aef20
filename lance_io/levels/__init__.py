"""NESTING ⇄ LEVELS: from the layers of a page to Arrow structs and lists.

`path` is the way from a top-level field down to one leaf column, `assemble` wraps a leaf in its structs and lists and
joins sibling leaves; `layout` describes batches that kernels make whole. The loops over repetition and definition
levels are kernels; `arrays` makes Arrow arrays over the memory of numpy. Pure: no I/O.
Specification: structural encodings 2.1, section 2.
"""
