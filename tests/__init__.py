"""The tests mirror src/thriftune; see CONTRIBUTING.md for how to run some of them."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The repository."""
