"""The version of the thriftune that runs."""

__version__ = "0.1.0"
