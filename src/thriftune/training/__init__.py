"""What does the training code see? The trial handle, checkpoints, and the workers of a gang."""
