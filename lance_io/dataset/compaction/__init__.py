"""Old names of modules, for pickles of earlier releases; see `old_homes`."""

from lance_io.old_homes import stand_for

stand_for(__name__, {"optimizer": "lance_io.dataset.optimizer"})
