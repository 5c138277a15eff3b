"""Properties: their table, where their values come from, what is wrong with them, what a running broker was given."""
