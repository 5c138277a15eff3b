"""Properties: their table, the sources of their values, the checks, and the configuration of a running broker."""
