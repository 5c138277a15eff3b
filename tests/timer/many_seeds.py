"""The scenarios of test_simulation.py over many seeds.

python -m tests.timer.many_seeds --seeds 2000 [--first 0]      prints the seeds that broke a promise
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.timer import test_simulation

SCENARIOS: dict[str, Callable[[int], None]] = {
    name: value for name, value in vars(test_simulation).items() if name.startswith("test_")
}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="The scenarios of test_simulation.py over many seeds.")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    began, failures = time.monotonic(), 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for name, scenario in SCENARIOS.items():
            try:
                scenario(seed)
            except AssertionError as error:
                failures += 1
                print(f"seed {seed}, {name}: {error}", flush=True)
    print(
        f"{arguments.seeds} seeds from {arguments.first} on, {len(SCENARIOS)} scenarios, "
        f"{time.monotonic() - began:.0f} s: {failures} broke a promise"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
