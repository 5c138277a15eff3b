"""One attacker: a process on one CPU that plans an attack, waits for the start, runs it and prints its tally.

    python -m ringmq.loadtest.siege.attacker NAME SEED CPU < orders

The first line of orders is the target as JSON, answered by `ready`. The second line is the number of seconds,
answered by the tally as JSON.
"""

import contextlib
import dataclasses
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from ringmq.loadtest.siege.attack import Target
from ringmq.loadtest.siege.swarm import Swarm, Tally

END_TIMEOUT_S = 60.0


class AttackerError(RuntimeError):
    """The attacker itself has failed. The message holds its output."""


class Attacker:
    """The process, from the side of the siege."""

    def __init__(self, name: str, target: Target, seed: int, cpu: int) -> None:
        self.name = name
        command = [sys.executable, "-m", "ringmq.loadtest.siege.attacker", name, str(seed), str(cpu)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._send(json.dumps(dataclasses.asdict(target)))
        if self._receive() != "ready":
            raise AttackerError(f"{name}: {self._errors()}")

    def begin(self, seconds: float) -> None:
        """Begin the attack now."""
        self._send(str(seconds))

    def end(self) -> dict[str, Any]:
        """Wait for the end and return the tally. Raises AttackerError."""
        line = self._receive()
        errors = self._errors()
        if not line or self._process.returncode:
            raise AttackerError(f"{self.name}: {errors}")
        tally: dict[str, Any] = json.loads(line)
        return tally

    def close(self) -> None:
        """End the process in any state."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _receive(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _errors(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
            return self._process.communicate(timeout=END_TIMEOUT_S)[1][-3000:]
        return "it does not end"


@contextlib.contextmanager
def attackers(names: tuple[str, ...], target: Target, seed: int, cpu: int) -> Iterator[list[Attacker]]:
    """Yield attackers that are ready, and end all of them afterwards."""
    made: list[Attacker] = []
    try:
        for number, name in enumerate(names):
            made.append(Attacker(name, target, seed + number, cpu))
        yield made
    finally:
        for attacker in made:
            attacker.close()


def _plain(tally: Tally) -> dict[str, object]:
    values = dataclasses.asdict(tally)
    return values | {"answers": dict(tally.answers.most_common(12)), "not_opened": dict(tally.not_opened)}


def main(name: str, seed: int, cpu: int) -> None:
    """Run the process."""
    from ringmq.loadtest.siege.attacks import attack_named

    os.sched_setaffinity(0, {cpu})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    target = Target(**json.loads(sys.stdin.readline()))
    swarm = Swarm(attack_named(name).plan(target, random.Random(seed)))
    print("ready", flush=True)
    if line := sys.stdin.readline():
        print(json.dumps(_plain(swarm.run(float(line)))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
