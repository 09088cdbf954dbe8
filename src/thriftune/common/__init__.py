"""Small helpers used everywhere: durations, formatting, checks, text, the clock."""
