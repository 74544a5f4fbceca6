"""The features of every broker with their versions (KIP-584): `transaction.version`, always at its newest level.

Those of a cluster, whose levels operators raise, are in `core.cluster.features`.
"""

# KIP-890: version 2 of the transaction protocol bumps the producer epoch with every transaction.
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MIN = 0
TRANSACTION_VERSION_MAX = 2
