"""Machines of a Ray cluster that somebody else runs, and of its autoscaler."""
