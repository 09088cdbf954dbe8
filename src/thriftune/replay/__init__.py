"""What would have happened? Simulation, what-if, recordings and replayed markets."""
