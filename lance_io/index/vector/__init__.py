"""Vector search: vectors as matrices, distances, and nearest rows.

vector_arrays  an Arrow array of vectors -> a matrix
distances      exact distances, and bounds of them from a matrix product
nearest_rows   the k nearest rows of all that were added
flat_search    batches of vectors -> the rows nearest to some queries
vector_details what the index section says of an index
vector_codes   codes of vectors, and their distances from a query
rotated_codes  the same for RaBitQ
storage_metadata  JSON that describes codes
ivf            partitions around centroids, from index files
"""
