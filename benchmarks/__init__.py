"""How does thriftune compare? Benchmarks with bars, and side-by-side measurements with similar tools."""
