"""Helpers for the tests of several packages: made-up studies, rented machines and Ray clusters."""
