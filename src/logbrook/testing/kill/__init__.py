"""The kill test: a loaded broker is killed again and again, and what its clients saw is searched for broken promises.

python -m logbrook.testing.kill --kills 100

campaign    a run, as its `plan` says: `moments` are when the broker is killed, `broker_process` is what is killed,
            `guardian` leaves nothing behind
load        the clients: `producers`, `transactional` ones, `members` of groups, a `prober` of offsets, a
            `topic_maker`; `scene` is what they share, `clients` the library they use
final_read  what is there in the end; `logbrook.testing.history` judges
damage      loses acknowledged writes on purpose, to prove that it would be noticed

The clients need confluent-kafka, so nothing of this is imported with `logbrook.testing`.
"""
