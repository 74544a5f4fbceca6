"""Values with a schema in a schema registry: Avro, Protobuf and JSON Schema.

- `options` parses the options, `registry` is the HTTP client, `reader_schema` the schema that a query reads with.
- `decoding` decodes the column `value` in a task. Avro: `avro_schema` parses schemas, `avro_resolution` compiles a
  writer's and the reader's schema into a program, `kernels` executes it for all rows, `columns` makes Arrow arrays.
- Protobuf: `proto_schema` parses .proto files, `proto_columns` makes tables of fields, `proto_decoding` decodes.
- `json_schema` has the types of JSON values, which `spark.json_values` parses.
- Sinks: `encoding_options` parses options, `avro_derivation` and `proto_derivation` make a schema of a Spark type,
  `encoding`, `avro_encoding` and `proto_encoding` encode the column, whose buffers `encoding_columns` describes.

`decoding`, `encoding` and what they import load numba and are imported in tasks only. May import
`spark.errors`, `spark.options`, `spark.json_values`, `client` and the packages below it.
"""
