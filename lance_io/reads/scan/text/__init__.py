"""Full-text search: the rows that match words best, by indices and by searching texts without one.

full_text_request  the keywords, checked
text_choice  columns and indices of a query
prepared_text  the part that all searches of a column share, cached
flat_texts   texts that no index covers: their words, counted
text_plan    a query -> the matches of its parts, combined
text_search  matches -> a table: taken, filtered, ordered, cut
"""
