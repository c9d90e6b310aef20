"""OPERATIONS as values: those of users in pylance's form, and those of `table/`.

lance_operation, convert   pylance's classes, to and from the table's
transaction_history        transactions of past versions
schema_fit                 a schema of input against the table's
"""
