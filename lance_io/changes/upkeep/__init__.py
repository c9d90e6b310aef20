"""UPKEEP of a table: branches, tags, clones, removal of versions and tables.

change_branches, change_tags, held_versions   branches and tags; versions pinned during a change
clone_tables                                  shallow and deep clones
remove_versions, drop_table, migrate_names    cleanup, removal, names of manifests
"""
