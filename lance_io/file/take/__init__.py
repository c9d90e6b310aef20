"""TAKES from files: which pages hold the rows, their indexes, and all of them in one round."""
