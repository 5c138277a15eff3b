"""The fuzz's short form: some damaged inputs for every target, in process under sanitizers and over sockets."""

import random
from pathlib import Path

import pytest

from ringmq.loadtest.fuzz.drivers import DRIVERS, Driver, FuzzError, build, run
from ringmq.loadtest.fuzz.golden import frames, records
from ringmq.loadtest.fuzz.main import Progress, fuzz_endpoints
from ringmq.loadtest.fuzz.sockets import BROKER_CODES, ENDPOINTS, damaged, http_inputs, remoting_inputs

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SOURCES = ROOT / "native" / "src"
OBJECTS = ROOT / "build" / "fuzz"
"""Kept between runs. With sanitizers the build takes most of the time, and twice as long with optimization."""
LEVEL, INPUTS = "-O0", 30_000
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the programs."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: str(driver.name))
def test_damaged_inputs_break_no_rule_of_the_c_core(driver: Driver, folder: Path) -> None:
    counted = run(driver, build(driver, SOURCES, folder, OBJECTS, LEVEL), GOLDEN, 1, INPUTS)
    assert counted["inputs"] == INPUTS


def test_a_target_that_is_not_reached_is_an_error(folder: Path) -> None:
    driver = DRIVERS[0]
    with pytest.raises(FuzzError, match=r"appends.* stayed at zero"):
        run(driver, build(driver, SOURCES, folder, OBJECTS, LEVEL), GOLDEN, 1, 1)


def test_damaged_requests_end_no_worker(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress.json", fresh=True)
    fuzz_endpoints([endpoint.name for endpoint in ENDPOINTS], progress, GOLDEN, 1, 0.01)
    for endpoint in ENDPOINTS:
        assert progress.of(endpoint.name)["inputs"] >= endpoint.inputs * 0.01


def test_progress_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    Progress(path, fresh=False).add("frames", {"inputs": 10})
    Progress(path, fresh=False).add("frames", {"inputs": 5})
    assert Progress(path, fresh=False).of("frames") == {"inputs": 15, "runs": 2}
    assert not Progress(path, fresh=True).of("frames")


def test_golden_inputs_are_there() -> None:
    assert len(frames(GOLDEN)) > 1000
    assert 500 < len(frames(GOLDEN, requests_only=True)) < len(frames(GOLDEN))
    assert len(records(GOLDEN)) > 1000


def test_the_same_seed_makes_the_same_inputs() -> None:
    for make in (remoting_inputs(BROKER_CODES)(frames(GOLDEN, requests_only=True)), http_inputs([])):
        first = [make(dice) for dice in [random.Random(3)] for _ in range(50)]
        assert first == [make(dice) for dice in [random.Random(3)] for _ in range(50)]
        assert len(set(first)) > 40


def test_damage_changes_something() -> None:
    dice = random.Random(1)
    data = b'{"code":310,"opaque":17}'
    assert sum(damaged(data, dice) != data for _ in range(100)) > 90
    assert damaged(b"", dice) == b""
