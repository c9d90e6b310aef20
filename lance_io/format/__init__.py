"""CONTAINER ⇄ VALUES: the metadata around the pages of a data file, and the schema message of files and tables.

Pure: functions from bytes to frozen values; callers fetch the bytes. May import `proto`, `spans`, `limits` and `errors`
only.

version          the version pairs of footers and manifests, and the readable versions
wire             protobuf parsing that raises `FormatError`
flatbuffer       reads from flatbuffers that raise it
footer           the last 40 bytes, and the offset tables before them
globals          the global buffers; buffer 0 is the file descriptor with the schema
columns          column metadata: the pages of each column
logical_types    the texts that name a type, to and from Arrow
schema           the tree of fields, its column numbering, projection, Arrow form
schema_messages  a schema from and to protobuf
error_context    adds the location in a file to errors
schema_arrow     a schema with fresh ids from an Arrow schema
per_schema       derived values that are cached with a schema
"""
