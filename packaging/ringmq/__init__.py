"""RingMQ: a message broker that speaks RocketMQ's protocol, with a Python SDK (`ringmq.client`) and a Spark bridge."""

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _installed_version()


def _installed_version() -> str:
    """Return the version in the name of the metadata's folder.

    The import of importlib.metadata takes 25 ms, with packages for mail and archives, and each start of a broker on a
    new store asks for the version.
    """
    import os
    import sys

    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - pathlib is another import
        except OSError:
            continue
        for found in names:
            if found.startswith("ringmq-") and found.endswith(".dist-info"):
                return found.removeprefix("ringmq-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version(__name__)
