"""What a newcomer meets first: how much code a study takes, beside Optuna's, and how soon a bug is shown."""
