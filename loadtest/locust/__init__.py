"""Locust users over the blocking SDK, thresholds as exit codes, and a run with its own broker."""
