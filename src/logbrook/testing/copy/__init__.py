"""The copy test: transactional consume-transform-produce, exactly once, while broker and copiers are killed.

python -m logbrook.testing.copy --records 100000 --broker-kills 10 --copier-kills 10

    plan             the faults of a run and its outcome
    campaign         runs a plan: broker, copiers, faults, comparison
    copier           the program that copies, in transactions; copier_process is its process
    topics           the source and target topics
    comparison       describes how a copy differs from its original

The copiers need confluent-kafka, so `logbrook.testing` does not import this package.
"""
