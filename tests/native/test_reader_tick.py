"""What the reader's ticks find, with times that no test can wait for."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "native" / "src"


def run_driver(name: str, folder: Path) -> list[str]:
    """Build the driver with sanitizers; the words that it prints."""
    driver = Path(__file__).with_name(name)
    command = [
        "gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCE}", str(driver), "-o",
        str(folder / "driver"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True)
    done = subprocess.run([folder / "driver"], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def test_a_client_is_not_slow_while_its_answer_is_read_from_the_disk(tmp_path: Path) -> None:
    assert run_driver("tick_driver.c", tmp_path) == ["open", "slow", "open"]


def test_a_reader_is_deaf_when_bytes_wait_and_nothing_comes_in(tmp_path: Path) -> None:
    """Not when its sockets are empty, when what waits belongs to a connection that has to, or when something comes."""
    assert run_driver("deaf_driver.c", tmp_path) == ["hears", "5", "hears", "hears"]
