"""Files of the store that a start reads or makes before its workers, with errors that name file and remedy."""

from collections.abc import Mapping
from pathlib import Path

from ringmq.broker.start_error import StartError, unusable_file
from ringmq.ipc.exit_status import EXIT_STORE_REFUSED
from ringmq.ipc.segment import renew_plane_name
from ringmq.remoting import json_body
from ringmq.remoting.errors import RemotingError


def take_plane_name(root: Path) -> None:
    """Draw the name of this run's shared memory. Raises StartError."""
    try:
        renew_plane_name(root)
    except OSError as error:
        raise unusable_file(root, error) from error


def kv_config_path(root: Path, namesrv_properties: Mapping[str, str]) -> str:
    """The file with the KV configuration of the broker's own name server."""
    return namesrv_properties.get("kvConfigPath", str(root / "config" / "kvConfig.json"))


def check_kv_config(root: Path, namesrv_properties: Mapping[str, str]) -> None:
    """Check the KV configuration, which the worker `namesrv` loads. Raises StartError."""
    path = kv_config_path(root, namesrv_properties)
    try:
        if path and Path(path).exists():
            content = json_body.read_object(Path(path).read_bytes(), "kvConfig.json")
            table = json_body.mapping(content, "configTable")
            for namespace in table:
                json_body.text_mapping(table, namespace)
    except OSError as error:
        raise unusable_file(root, error, EXIT_STORE_REFUSED) from error
    except (RemotingError, ValueError) as error:
        raise StartError(
            f"{path}: {error}; repair the file, or move it away to start without its content", EXIT_STORE_REFUSED
        ) from error
