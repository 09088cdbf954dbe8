"""What happened, and what is known? Events, the settings of a study, and the history that its log gives."""
