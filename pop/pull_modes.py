"""Groups whose members pull a topic, as operators have set it (401)."""

from __future__ import annotations

from pathlib import Path

from ringmq.remoting.assignment_bodies import MODE_FILE, PULL, read_modes
from ringmq.store.config_files import load_config


def pulled(root: Path) -> set[tuple[str, str]]:
    """Topic and group of each pair that has the mode PULL in the file of a store. Entries that cannot be read are left
    out. Raises ConfigFileError and BadBody."""
    content = load_config(root, MODE_FILE)
    modes = read_modes(content, lambda line: None) if content else ()
    return {(mode.topic, mode.group) for mode in modes if mode.mode == PULL}
