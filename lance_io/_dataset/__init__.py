"""Under the names of a private package of pylance, from which programs import all the same."""
