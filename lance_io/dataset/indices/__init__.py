"""Methods of datasets about indices: building, keeping and describing them, and look-ups of keys."""
