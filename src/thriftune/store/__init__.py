"""What has happened, durably? The logs of studies, in SQLite."""
