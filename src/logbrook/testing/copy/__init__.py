"""The copy test: records go through consume-transform-produce, exactly once, though everybody is killed meanwhile.

python -m logbrook.testing.copy --records 100000 --broker-kills 10 --copier-kills 10

campaign        a run, as its `plan` says: `harms` are what is done to whom, and when
copier          the program under test's load: reads, transforms and writes in transactions; `copier_process` is one
                of them as a process that can be killed and held up
topics          what is copied, and what is there in the end
judge           says what differs from every record once, in order

The copiers need confluent-kafka, so nothing of this is imported with `logbrook.testing`.
"""
