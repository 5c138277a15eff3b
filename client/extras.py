"""Texts that name a missing extra. RingMQ is on no package index, so they name the checkout and the wheel."""


def how_to_install(extra: str) -> str:
    """Return the end of a sentence that names the extra and its installation."""
    return f"install ringmq[{extra}]: `pip install '.[{extra}]'` in a checkout, or 'ringmq-....whl[{extra}]'"


def not_installed(subject: str, module: str | None, extra: str) -> str:
    """Return the sentence that names a missing module, or the package that it belongs to, and its extra."""
    package = (module or "a module").partition(".")[0]
    return f"{subject} needs {package}, which is not installed; {how_to_install(extra)}"
