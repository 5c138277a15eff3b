"""The words that name a missing extra. RingMQ is on no package index, so they name the checkout and the wheel."""


def how_to_install(extra: str) -> str:
    """Return the end of a sentence that says which extra to install, and how."""
    return f"install ringmq[{extra}]: `pip install '.[{extra}]'` in a checkout, or 'ringmq-....whl[{extra}]'"
