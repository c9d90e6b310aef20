"""Methods of datasets about indices: look-ups of keys, and their preparation."""
