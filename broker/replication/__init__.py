"""What control does about replication: what it knows of slaves or of its master, what operators see and decide.

The stream and its policies are in `ringmq.ha`.
"""
