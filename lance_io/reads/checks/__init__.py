"""CHECKS of an open version: `validate()`, and payloads of blobs against their descriptions."""
