"""What would have happened? Simulations of studies on recorded learning curves, prices and preemptions."""
