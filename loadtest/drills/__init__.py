"""Drills: seeded kills, stops and faults under load, and the checker of their histories."""
