"""RingMQ: a message broker that speaks RocketMQ's protocol, with a Python SDK (`ringmq.client`) and a Spark bridge."""

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # a slow import, and few programs ask for the version

    return version(__name__)
