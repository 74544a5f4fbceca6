"""A query from topic to topic that is killed again and again, and whose output must be its input, exactly once.

`driver` is the query, in a process of its own. `campaign` starts it, kills it and its workers, and compares. Its input
comes in transactions, of which some are aborted.
"""
