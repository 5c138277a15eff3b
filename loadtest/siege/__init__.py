"""The siege: attacks on a broker from outside while a canary asks, and what the canary noticed."""
