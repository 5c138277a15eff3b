"""Batch kernels over mapped bytes: numba functions, each with a plain-Python reference that a test compares.

A kernel pays off for long arrays if no user waits for its compilation, which takes seconds. So only `ringmq store
verify --cross-check` uses kernels. numba is in the extra `kernels` alone.
"""
