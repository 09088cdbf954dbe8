"""What may a user write? The table of settings, study files, machine tables, engine options and deadlines."""
