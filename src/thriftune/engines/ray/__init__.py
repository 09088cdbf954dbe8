"""Runs trials on a Ray cluster."""
