"""Uses a fixed share of a CPU for a while: the reference for a scan beside a producer."""

import subprocess
import sys
import time

SPIN_S = 0.001


def use_cpu(share: float, seconds: float) -> float:
    """Spin until this process has used `share` of the time so far, rest, and so on. Return the used CPU seconds."""
    began, used = time.monotonic(), time.process_time()
    while (elapsed := time.monotonic() - began) < seconds:
        if time.process_time() - used < share * elapsed:
            pause = time.monotonic() + SPIN_S
            while time.monotonic() < pause:
                pass
        else:
            time.sleep(SPIN_S)
    return time.process_time() - used


class CpuLoad:
    """`count` processes that use `cpus` CPUs together, until the block ends."""

    def __init__(self, cpus: float, count: int, seconds_max: float) -> None:
        command = [sys.executable, "-m", "ringmq.loadtest.spark.cpu_load", str(cpus / count), str(seconds_max)]
        self._processes = [subprocess.Popen(command) for _ in range(count)]

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self._processes]

    def __enter__(self) -> "CpuLoad":
        return self

    def __exit__(self, *ignored: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    use_cpu(float(sys.argv[1]), float(sys.argv[2]))
