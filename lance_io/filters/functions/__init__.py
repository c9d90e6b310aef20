"""THE FUNCTIONS OF SQL TEXT.

function_registry.py  every function: its names, what it takes, what computes it

text.py            texts                                    list_items.py  what lists hold
regex.py           texts, by regular expressions            list_edits.py  lists made of lists
text_search.py     a text in the texts of a column          vectors.py     lists as points
encodings.py       characters, bytes, digests; blake3.py    structs.py     structs, maps, types; arrow_types.py
numbers.py         numbers                                  json_documents.py, json_path.py  JSON as it is stored
dates.py           dates and times; time_formats.py         date_arithmetic.py  times moved by intervals
"""
