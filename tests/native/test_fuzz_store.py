"""Record, index, queue and scan code under address and undefined-behaviour sanitizers."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = [
    "codec/record.c", "index/index.c", "queue/consume_queue.c", "recovery/log_recovery.c", "recovery/log_table.c",
    "codec/record_values.c", "base/utf8.c",
]  # fmt: skip


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = HERE.parents[1] / "native" / "src"
    program = tmp_path_factory.mktemp("fuzz") / "fuzz_store"
    command = [
        "gcc", "-std=c11", "-D_GNU_SOURCE", "-g1", "-pipe", "-O1", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", f"-I{source}",
        "-o", str(program), str(HERE / "fuzz_store.c"), *(str(source / name) for name in SOURCES), "-ldeflate",
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=110)
    return program


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_random_and_damaged_bytes(driver: Path, seed: int) -> None:
    done = subprocess.run([driver, str(seed), "800"], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
