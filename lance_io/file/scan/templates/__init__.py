"""SMALL FILES that look like others: what one says is understood once, and one kernel call decodes its like.

    file_templates   what is known of files, by schema; the bytes of others are compared with it
    page_templates   of the pages of versions 2.1 and later
    array_templates  of those of version 2.0
    small_files      scans of such files, some in a job

A module of pages has one function (`PageTemplates`): the template of a page, or None for those that are decoded by
themselves. Files of version 0.1 say nothing of themselves; for them `encodings/v0_1/whole_leaf.py` stands in.
"""
