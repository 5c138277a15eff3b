"""Batch kernels over mapped bytes: numba functions, each with a plain-Python reference that a test holds it against.

A kernel pays where arrays are long and nobody waits for its compilation, which takes seconds. So only `ringmq store
verify --cross-check` uses them. numba is in the extra `kernels` alone.
"""
