"""How does thriftune compare? Side-by-side measurements against peers and bars, one command each."""
