from thriftune.search.bayes.searcher import Bayes
