"""A progress bar on standard error, if that is a terminal and tqdm is installed."""

import sys
from typing import Any

from ringmq.client.extras import not_installed

SHOWN_AFTER_S = 1.0


class Progress:
    """With `shown` None the bar is shown on a terminal only."""

    def __init__(self, label: str, total: int, unit: str, shown: bool | None = None) -> None:
        self._bar: Any = None
        if shown is False or (shown is None and not sys.stderr.isatty()):
            return
        try:
            from tqdm import tqdm
        except ImportError:
            if shown:
                raise ImportError(not_installed("a progress bar", "tqdm", "arrow")) from None
            return
        delay = 0.0 if shown else SHOWN_AFTER_S
        self._bar = tqdm(desc=label, total=total, unit=unit, unit_scale=True, delay=delay, file=sys.stderr)

    def advance(self, amount: int) -> None:
        """Add to the finished amount."""
        if self._bar is not None:
            self._bar.update(amount)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
