"""How fast, how sturdy, how well placed? Benchmarks of trials on Ray clusters."""
