"""THE FUNCTIONS OF SQL TEXT: a module for each subject, which is loaded when one of its functions is named.

    function_registry.py  which function is where, and what a function is
    conditions.py         values chosen and compared, of any type
    text.py               texts, with text_search.py; regex.py those by regular expressions
    encodings.py          codes and digits; digests.py with blake3.py
    numbers.py            numbers, and the arithmetic of decimals
    nullary.py            functions without arguments
    list_items.py         what lists hold; list_edits.py lists made of others; vectors.py lists as points
    structs.py            structs and maps
    dates.py              dates and times, with time_formats.py; date_arithmetic.py times and intervals
    arrow_types.py        types by their Arrow names
    json_documents.py     JSON as it is stored, with json_path.py

`list_columns.py` and, for all filters, `elementwise.py` have what several of them do. Functions get values and give
values; what they take is checked and converted before (`binding/arguments.py`).
"""
