"""The features of the cluster with their versions (KIP-584): `transaction.version`, always at its newest level."""

# KIP-890: version 2 of the transaction protocol bumps the producer epoch with every transaction.
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MIN = 0
TRANSACTION_VERSION_MAX = 2
