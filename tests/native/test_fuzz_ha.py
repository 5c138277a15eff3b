"""The HA writer under address and undefined-behaviour sanitizers, with honest, slow and lying slaves."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = [
    "ha/ha_sender.c", "ha/ha_connection.c", "ha/ha_frames.c", "ha/ha_log.c", "ha/ha_watermark.c", "plane/plane.c",
    "plane/plane_tables.c", "plane/asks.c", "plane/invariant.c", "base/log_line.c", "plane/worker_activation.c",
    "spark/name_table.c", "log/segment.c",
]  # fmt: skip


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = HERE.parents[1] / "native" / "src"
    program = tmp_path_factory.mktemp("fuzz") / "fuzz_ha"
    command = [
        "gcc", "-std=gnu11", "-D_GNU_SOURCE", "-g1", "-pipe", "-O1", "-Wall", "-Wextra", "-Werror",
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", f"-I{source}",
        "-o", str(program), str(HERE / "fuzz_ha.c"), *(str(source / name) for name in SOURCES),
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=110)
    return program


@pytest.mark.parametrize("seed", [1, 2])
def test_random_slaves(driver: Path, tmp_path: Path, seed: int) -> None:
    command = [driver, str(seed), "30000", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    transfers, lies, reports, replicated = map(int, done.stdout.split())
    assert transfers > 200 and lies > 50 and reports > 1000 and replicated > 100_000, done.stdout
