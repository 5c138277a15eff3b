"""Batch kernels over mapped bytes: numba functions, each with a plain-Python reference that a test holds it against.

Never imported on the way to ready: `import numba` costs 35 MB and seconds. Only `ringmq store verify` uses them.
"""
