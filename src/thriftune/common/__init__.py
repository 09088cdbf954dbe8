"""Which small helpers does every package use? Durations, formatting, checks, text, and the clock."""
