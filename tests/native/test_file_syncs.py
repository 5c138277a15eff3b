"""File syncs over both engines: scenes of sync_driver.c, each under sanitizers."""

from pathlib import Path

import pytest
from sanitized import ENGINES, build_driver, play_scene, scenes_of


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver("sync_driver.c", tmp_path_factory.mktemp("sync"), "-luring", "-lpthread")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scene", scenes_of("sync_driver.c"))
def test_file_syncs(driver: Path, engine: str, scene: str) -> None:
    play_scene(driver, engine, scene)
