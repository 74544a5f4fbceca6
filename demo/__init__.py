"""`make demo`: a broker, a stream of orders, a Spark pipeline, and its results."""
