"""Removing old versions, and files that no version names.

cleanup          plans a cleanup; runs the automatic cleanup after a commit
cleanup_reads    reads for planning: manifests, tags, branches, listings
cleanup_values   plans and statistics
cleanup_removal  announces versions and removes them
"""
