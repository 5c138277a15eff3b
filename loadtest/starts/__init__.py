"""The cost of a start: the imports of each process, and the processor time of a broker until it is ready."""
