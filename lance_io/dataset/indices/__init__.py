"""Methods of datasets about indices: building, keeping and describing them, look-ups of keys, and their preparation."""
