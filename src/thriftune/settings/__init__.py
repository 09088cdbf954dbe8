"""What may a user write? Study files, scripts, machine tables, engine options, deadlines."""
