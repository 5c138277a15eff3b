"""Which connections the reader's tick closes, with times that no test can wait for."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "native" / "src"


def test_a_client_is_not_slow_while_its_answer_is_read_from_the_disk(tmp_path: Path) -> None:
    driver = Path(__file__).with_name("tick_driver.c")
    command = [
        "gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCE}", str(driver), "-o",
        str(tmp_path / "driver"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True)
    done = subprocess.run([tmp_path / "driver"], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["open", "slow", "open"]
