"""The side-by-side bench (`ringmq bench`): rows, repeated measurements, reports.

The ceiling and the rows of replication need programs of the checkout. An installed wheel has neither.
"""
