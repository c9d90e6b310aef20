"""Comparisons with pylance and with Parquet: `make bench`, described in `docs/benchmarks.md`.

tables      the tables that are measured, written once into a cache folder
cases       what a case is, and what all share
reads       takes, scans, opening, importing, memory
filters     scans with a filter
passing     the same by how many rows pass, how they lie, how wide they are, in how many files
functions   every function of filters as a computed column; functionrows makes their table
writes      time, size and memory of writing tables
kinds       real kinds of text and numbers; textsizes texts of nineteen kinds, few and many, which textkinds makes
changes     rows of a table updated and merged
commits     small appends, alone and against others
shapes      wide tables and many files
shares      several processes that append to one table
spark       reads and writes in Spark; sparkjobs runs them, sparksource is the ceiling they are compared with
sparksql    SQL through the JAR of Spark, beside the Parquet reader of Spark; sparkchanges statements that change tables
catalogue   all of them
measure     how: contenders take turns in one run, and ratios are taken within a round
probe       one measurement in a fresh interpreter
profiling   where the time of one case goes
lock_share  the share of a scan's processor time under the interpreter's lock, in the worker of Spark's JAR
report      the table that is printed, the JSON that is kept
picture     the drawing of a report
buckets     the same questions asked of a bucket: requests and bytes
transport   processor time of a GET, against aiohttp
latency     times on a bucket: a proxy adds latency, a bare client shows what is possible
run         the command line
"""
