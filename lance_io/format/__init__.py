"""CONTAINER ⇄ VALUES: what surrounds the pages of a data file, and the schema message that files and tables share.

Pure: functions from bytes to frozen values; whoever calls them has fetched the bytes. May import `proto`, `spans`,
`limits` and `errors` only.

version          the version pairs of footers and manifests, and which of them we read
wire             protobuf parsing that raises `FormatError`
flatbuffer       reads from flatbuffers that raise it
footer           the last 40 bytes, and the offset tables in front of them
globals          the global buffers; buffer 0 is the file descriptor with the schema
columns          column metadata: where the pages of a column are
logical_types    the texts that name a type, to and from Arrow
schema           the tree of fields, its column numbering, projection, Arrow form
schema_messages  a schema from and to protobuf
error_context    errors told where in a file they happened
schema_arrow     a schema with fresh ids out of an Arrow schema
per_schema       what rooms keep with a schema
"""
