"""SCANS: from what was asked to batches.

scan_options, scan_arguments   the keywords, checked
scan_plan, explain, io_plan    which rows and columns are read, and what that asks of the store
stream, pipeline, rebatch      decoded pages to batches of the wanted size
execute, ordering, data_frames, scan_statistics   results, sorted ones, data frames, and what they cost
"""
