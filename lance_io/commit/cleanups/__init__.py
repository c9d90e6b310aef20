"""Removing old versions, and files that no version names.

cleanup          the plan: what goes; the cleanup that follows a commit
cleanup_reads    what is read for it
cleanup_values   what it says of itself
cleanup_removal  announcing versions and removing them
"""
