"""Measurements with their goals. `make bench` runs them all."""
