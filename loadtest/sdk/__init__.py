"""The SDK bench: this SDK beside PyPI's `rocketmq`, one process each."""
