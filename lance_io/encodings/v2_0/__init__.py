"""Pages of file version 2.0: arrays, buffer by buffer, and lists whose items are in another column."""
