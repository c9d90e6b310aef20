"""MAKING A VERSION VISIBLE, and finding those that are (spec: commit protocol; table, section 3).

Uses stores and the pure `table` room; the dataset room stands above. So far it only finds versions:

latest   the newest version, a version by its number, all versions
"""
