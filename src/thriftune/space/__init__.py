"""What may vary, and what is wanted? Parameters, spaces, conditions and objectives."""
