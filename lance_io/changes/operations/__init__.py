"""OPERATIONS as values: the public ones in pylance's form, and those of `table/`.

lance_operation, convert   pylance's classes, and their conversion to and from the table's
transaction_history        transactions of past versions
schema_fit                 checks of input schemas against the table's
"""
