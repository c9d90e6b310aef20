"""`lance-io index`: its arguments (`index_commands.py`) and what they run (`index_work.py`)."""
