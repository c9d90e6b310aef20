"""THE WORKER behind the JAR: one Python process for each JVM, driver or executor, that does all reading for it.

    __main__        the process: versions of both sides, where it listens, and its end with the JVM
    listening       a socket in a folder of its own, or a port of the loopback
    jvm_connections  one request for each connection; its message, its answer, its errors
    worker_operations  the requests by name
    named_versions  versions by number, tag, branch and time, and what is kept where there is none
    narrowed_structs  structs of which a query uses some members
    pushed_filters  Spark's predicates in the language of filters
    pushed_answers  aggregates from the manifest and indices, first rows of an order
    part_batches    the batches of a task, as an Arrow stream

The JVM starts `python -m lance_io.spark.worker` and sends a line of JSON. All requests share one engine, one cache and
one set of connections. Pickles go from one worker to another by way of the JVM; both are of the same version, which the
first line ensures. A connection that the JVM closes cancels its request.
"""
