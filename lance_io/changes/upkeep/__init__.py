"""UPKEEP of a table: plans for branches, tags, clones, and for the removal of old versions and of whole tables.

change_branches   creates and removes branches
change_tags       creates, moves and removes tags
held_versions     resolves a reference to a version, and pins the version while a change uses it
clone_tables      makes shallow and deep clones
remove_versions   removes old versions and unreferenced files (cleanup)
drop_table        removes a whole table
rename_manifests  renames manifest files from V1 names to V2 names
"""
