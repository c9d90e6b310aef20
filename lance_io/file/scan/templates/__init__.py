"""Small files with equal metadata: the metadata is parsed once, and one kernel call decodes all files that match it.

    file_templates   templates of files, by schema; the kernel compares the bytes of other files with them
    page_templates   templates of pages of versions 2.1 and later
    array_templates  templates of pages of version 2.0
    file_run         common to the scans of such files: limits, joined batches
    small_files      scans of such files in the caller's thread, several per job
    remote_files     the same on the engine's loop, a request for each file

Both page modules have one function (`PageTemplates`): it returns the template of a page, or None for a page that must
be decoded alone. Files of version 0.1 have no such metadata; `encodings/v0_1/whole_leaf.py` handles them.
"""
