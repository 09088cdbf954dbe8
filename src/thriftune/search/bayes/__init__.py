"""Bayesian search: a model of what has been seen, and where it expects the most."""

from thriftune.search.bayes.searcher import Bayes

__all__ = ["Bayes"]
