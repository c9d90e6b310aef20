"""THE FUNCTIONS OF SQL TEXT: one module per subject, loaded when a filter first names one of its functions.

    function_registry.py  the module of each function, and `SqlFunction`
    conditions.py         values chosen and compared, of any type
    text.py               texts, with text_search.py; regex.py regular expressions
    encodings.py          codes and digits; digests.py digests
    numbers.py            numbers, and the arithmetic of decimals
    nullary.py            functions without arguments
    list_items.py         items of lists; list_edits.py lists from lists; vectors.py lists as vectors
    structs.py            structs and maps
    dates.py              dates and times, with time_formats.py; date_arithmetic.py times and intervals
    arrow_types.py        types by their Arrow names
    json_documents.py     stored JSON, with json_path.py

`list_columns.py`, `list_pool.py` and, for all filters, `elementwise.py` and `kernel_calls.py` have the shared code.
Functions use Arrow's kernels where the semantics match, else our own over whole columns. They take values and return
values; the binder checks and converts arguments first (`binding/arguments.py`).
"""
