"""SCANS: from options to batches.

scan_options, scan_arguments   the keywords, checked
scan_plan, explain, io_plan    rows and columns to read, and the requests for them
read_spans                     spans of rows from data files
stream, pipeline, span_rows    decoded pages to batches of the requested size
execute, ordering, data_frames, scan_statistics   results, sorted ones, data frames, and their cost
"""
