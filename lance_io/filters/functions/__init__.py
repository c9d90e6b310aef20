"""THE FUNCTIONS OF SQL TEXT: a module for each subject, which is loaded when one of its functions is named.

    function_registry.py  which function is where, and what a function is
    conditions.py         values chosen and compared, of any type
    text.py               texts, with text_search.py; regex.py those by regular expressions
    encodings.py          codes and digits; digests.py digests
    numbers.py            numbers, and the arithmetic of decimals
    nullary.py            functions without arguments
    list_items.py         what lists hold; list_edits.py lists made of others; vectors.py lists as points
    structs.py            structs and maps
    dates.py              dates and times, with time_formats.py; date_arithmetic.py times and intervals
    arrow_types.py        types by their Arrow names
    json_documents.py     JSON as it is stored, with json_path.py

`list_columns.py`, `list_pool.py` and, for all filters, `elementwise.py` and `kernel_calls.py` have what several of them
do: Arrow's kernels where they mean the same, else our own over whole columns. Functions get values and give
values; what they take is checked and converted before (`binding/arguments.py`).
"""
