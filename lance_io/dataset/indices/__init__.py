"""Methods of datasets about indices: building and keeping them, look-ups of keys, and their preparation."""
