"""The siege: attacks on a broker from outside while a canary sends requests, and the canary's figures."""
