"""What came of a study, and what did it cost? Values, models, importance, tables and the ledger."""
