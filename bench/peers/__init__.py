"""Logbrook beside what a user would pick instead. `make bench-peers` runs it; `docs/BENCHMARKS.md` is what it wrote."""
