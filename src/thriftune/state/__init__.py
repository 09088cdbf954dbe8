"""What happened in a study, and what is known about it?

This package has the events, the settings of a study, and the history that follows from its log.
"""
