"""What runs of pipelines say of themselves, in a compacted topic of the cluster that they work with.

`report` is what is said, `reporter` says it while a pipeline runs, `reading` finds what was said last. Whoever shows
pipelines, be it the console, its HTTP API or the command line, reads it here, and needs no Spark for that.
"""
