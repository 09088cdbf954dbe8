"""Benchmarks of planning: optimality, speed, and the accuracy of predictions."""
