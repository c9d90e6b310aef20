"""Building IVF indices: vectors in, centroids and codes learned from a sample, files out. Pure.

vector_models.py     the learned part of an index: centroids, codebook, bounds; its messages
usable_vectors.py    Arrow arrays to matrices of the vectors that an index holds
clustering.py        k-means, and the nearest centroid of many vectors
product_training.py  codebooks, and codes by them
coded_vectors.py     the bytes of a row in each coding
partition_runs.py    rows by partition, more than fit into memory
ivf_files.py         the files of a segment
"""
