"""The exactly-once tests of the Spark sinks: queries whose drivers and workers are killed repeatedly.

`driver` is a topic-to-topic query, in its own process. `campaign` writes its input in transactions, some of them
aborted, starts and kills the query and its workers, and compares output with input. `control_files` is how they
communicate.

`scenarios` are jobs to tables and topics: batch writes, windows, a join through `foreachBatch`, upserts, a pipeline
with dead letters. `scenario_driver` runs all of them in one process, which `scenario_campaign` kills, at random moments
or while writers stop at their commits (`stops`, `stopping_topics`, `stopping_tables`). `leftovers` finds what a killed
driver has left unfinished.

`campaign_broker` are the brokers, which are killed and started again, too. `command` is the command line. Imports
`spark`, `client` and the rest of `testing`.
"""
