"""Which search is better? Simple regret and seconds a suggestion, side by side with peers."""
