"""Both event engines over real sockets and files, under sanitizers: scenes, and random mixes of operations."""

import subprocess
import sys
from pathlib import Path

import pytest
from sanitized import ENGINES, build_driver, play_scene, scenes_of

FILTER = Path(__file__).parents[1] / "broker" / "seccomp.py"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver("engine_driver.c", tmp_path_factory.mktemp("engine"), "-luring", "-lpthread")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scene", scenes_of("engine_driver.c"))
def test_engine(driver: Path, engine: str, scene: str) -> None:
    play_scene(driver, engine, scene)


def test_mapped_reads_on_kernels_before_5_14(driver: Path) -> None:
    play_scene(driver, "epoll", "mapped_reads", prefix=(sys.executable, str(FILTER), "populate=EINVAL"))


@pytest.fixture(scope="module")
def accept_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver("engine_accept_driver.c", tmp_path_factory.mktemp("accept"), "-luring", "-lpthread")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scene", scenes_of("engine_accept_driver.c"))
def test_accepting(accept_driver: Path, engine: str, scene: str) -> None:
    play_scene(accept_driver, engine, scene)


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver("engine_mix_driver.c", tmp_path_factory.mktemp("mix"), "-luring", "-lpthread")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_operations_keeps_bytes_and_ends(mix: Path, engine: str, seed: int) -> None:
    command = [mix, engine, str(seed), "10000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    operations, connections = map(int, done.stdout.split())
    assert operations > 1000 and connections > 100
