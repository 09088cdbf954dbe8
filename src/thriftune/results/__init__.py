"""What did a study find, and what did it cost? Values, models, importance, tables and the ledger."""
