"""What happened, and what is known?

This package has the events, the settings of a study, and the history that follows from its log.
"""
