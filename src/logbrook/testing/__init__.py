"""Shipped test kit: the crashable file system, fault injection and the power-loss harness."""
