"""Locust users over the blocking SDK, thresholds as exit codes, and a run with a broker of its own."""
