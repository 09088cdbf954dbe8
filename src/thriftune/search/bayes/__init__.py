"""Bayesian search: which configuration has the highest expected improvement, by a model of all trials?"""

from thriftune.search.bayes.searcher import Bayes

__all__ = ["Bayes"]
