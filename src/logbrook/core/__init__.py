"""Deterministic state machines: they decide, and what they decided is replayed."""
