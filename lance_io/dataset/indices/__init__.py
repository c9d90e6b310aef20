"""Methods of datasets that build, keep and describe indices."""
