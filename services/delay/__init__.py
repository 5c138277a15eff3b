"""Delay levels: messages wait in the queue of their level, and are published when they are due."""
