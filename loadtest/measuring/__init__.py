"""The frame of the benches: measurements and goals, rounds, documents, tables, plots, and the main function."""
