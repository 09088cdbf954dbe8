"""Benchmarks of studies whose state is in an object store."""
