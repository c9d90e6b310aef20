"""Old names of modules, for pickles of earlier releases; see `old_homes`."""

from lance_io.old_homes import stand_for

stand_for(
    __name__,
    {
        "fragment_metadata": "lance_io.reads.metadata.fragment_metadata",
        "lance_schema": "lance_io.reads.metadata.lance_schema",
        "session": "lance_io.reads.version.session",
        "state": "lance_io.reads.version.state",
    },
)
