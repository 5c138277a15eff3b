"""Transactions: half messages wait for the end of their transaction, and producers that send none are checked."""
