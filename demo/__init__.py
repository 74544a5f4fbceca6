"""`make demo`: a broker, a stream of orders, a pipeline on Spark, and what came out of it."""
