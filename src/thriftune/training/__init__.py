"""What does the training code see? The trial handle, checkpoints, and the other workers of a trial."""
