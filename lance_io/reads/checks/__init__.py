"""CHECKS of an open version: `validate()`, and blob files against their descriptions."""
