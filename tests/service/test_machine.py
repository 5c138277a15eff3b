"""What the machine of the boot tests installs."""

from tests.service.machine import ROOT, sources


def test_a_change_in_any_package_installs_the_service_again() -> None:
    """Packages by their markers, as setup.py finds them: an old installation would be tested for ever."""
    installed = {path.parent for path in ROOT.glob("*/__init__.py")} | {ROOT / "systemd", ROOT / "packaging" / "ringmq"}
    found = set(sources())
    assert all(set(folder.rglob("*.py")) <= found for folder in installed)
    assert {ROOT / name for name in ("fastjson/reader.py", "timer/worker.py", "systemd/install", "setup.py")} <= found
