"""The desk reads damaged requests and records under sanitizers, and reads nothing outside of them."""

import subprocess
from pathlib import Path

import pytest
from sanitized import SOURCE

HERE = Path(__file__).parent
SOURCES = (
    "pop/pop_batch_acks.c", "pop/pop_records.c", "pop/pop_requests.c", "codec/answer.c", "codec/batch_body.c",
    "codec/frame_header.c", "codec/header_fields.c", "codec/json_text.c", "codec/record.c", "base/utf8.c",
)  # fmt: skip


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver of this folder."""
    program = tmp_path_factory.mktemp("parse") / "driver"
    command = [
        "gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g1", "-pipe", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCE}", str(HERE / "parse_driver.c"),
        *(str(SOURCE / name) for name in SOURCES), "-o", str(program), "-ldeflate",
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=110)
    return program


@pytest.mark.parametrize("seed", range(1, 4))
def test_damaged_input(driver: Path, seed: int) -> None:
    done = subprocess.run([driver, str(seed), "20000"], capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stdout) == (0, "1 1 1\n"), done.stderr[-4000:]
