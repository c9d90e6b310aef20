"""INDICES: plans that build scalar indices and keep them.

create_index      one index: checks, build, commit
index_request     arguments of a build, checked against the schema
build_segment     scan of one column -> files of one segment, read back
segment_files     the files of a segment: writing, reading back, removal
"""
