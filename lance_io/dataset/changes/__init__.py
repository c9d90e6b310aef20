"""Old names of modules, for pickles of earlier releases; see `old_homes`."""

from lance_io.old_homes import stand_for

stand_for(__name__, {"lance_operation": "lance_io.changes.operations.lance_operation"})
