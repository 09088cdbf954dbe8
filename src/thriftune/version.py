"""The version of the thriftune that runs."""

__version__ = "0.2.0"
