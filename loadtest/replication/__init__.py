"""Rows of the bench for a master and its slave: links, catch-up, stalls, losses."""
