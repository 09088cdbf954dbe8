"""How does a study look? Texts, progress, tables and plots."""
