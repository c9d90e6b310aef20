package lance_io.spark;

/**
 * The parts of a query that a scan does by itself.
 *
 * @param counts whether it gives the number of rows of each task instead of rows
 * @param filter SQL in the language of Python, null for none; it may leave more rows than the predicates
 * @param limit rows of each task, or of all where there is neither filter nor order; -1 for none
 * @param offset rows to leave out
 * @param order sort keys as JSON: each task gives its first rows in this order; null for none
 * @param sample the fragments to read; null for all
 */
record Pushed(boolean counts, String filter, int limit, int offset, String order, Sample sample) {}
