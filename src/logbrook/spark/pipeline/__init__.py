"""`logbrook pipeline`: topics through SQL into topics and tables, said in a TOML file and run by Spark.

`file` reads a pipeline, `compiling` makes streaming queries of it, `running` starts, watches and stops them. `command`
is what the command line calls, which gets by without Spark until a pipeline is known to make sense.
"""
