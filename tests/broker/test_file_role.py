"""The role of a start: the tenure file, the configuration without one, and files that end the start."""

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole, changed_role, difference, owner_of, with_role
from ringmq.broker.config.first_tenure import starts_as_slave
from ringmq.broker.config.relations import changed, contradictions
from ringmq.broker.start_error import StartError
from ringmq.broker.start_files import take_role
from ringmq.cli.main import main
from ringmq.ha.epochs import BROKER_ID_MAX
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_STORE_REFUSED
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.ha_bodies import HaStatus
from ringmq.store.tenure_file import EpochStart, Policy, TenureRecord, read_tenure, write_tenure
from tests.raw_client import RawClient
from tests.waiting import wait_until

EPOCH = 3 << 16 | 1
"""Of a promotion of broker 1."""
POLICY = Policy("SYNC_MASTER", replica_policy="majority", total_replicas=3, ha_allowed_networks="10.0.0.0/24")
SYSTEM_TOPIC = "TBW102"
SMALL = {"mappedFileSizeCommitLog": str(1 << 20)}
MASTER = BrokerConfig()
SLAVE = BrokerConfig(broker_role="SLAVE", broker_id=1)


def config_of(root: Path, **values: str) -> BrokerConfig:
    return changed(BrokerConfig(), {"storePathRootDir": str(root), **values})


def test_without_a_file_the_configuration_counts(tmp_path: Path) -> None:
    for values in ({}, {"brokerRole": "SLAVE", "brokerId": "1"}):
        config = config_of(tmp_path, **values)
        assert take_role(config) == (config, FirstRole.of(config))


def test_a_promoted_slave_starts_as_a_master_with_the_policy_of_the_last_one() -> None:
    taken = with_role(SLAVE, TenureRecord(True, EPOCH, POLICY))
    assert (taken.broker_role, taken.broker_id) == ("SYNC_MASTER", 0)
    assert (taken.replica_policy, taken.total_replicas) == ("majority", 3)
    assert taken.ha_allowed_networks == "10.0.0.0/24"
    assert not list(contradictions(taken))


def test_the_networks_of_the_configuration_stay() -> None:
    own = BrokerConfig(broker_role="SLAVE", broker_id=1, ha_allowed_networks="10.0.0.2")
    assert with_role(own, TenureRecord(True, EPOCH, POLICY)).ha_allowed_networks == "10.0.0.2"


@pytest.mark.parametrize(
    ("epoch", "broker_id"),
    [(EPOCH, 1), (3 << 16 | 7, 7), (0, BROKER_ID_MAX), (3 << 16, BROKER_ID_MAX)],
)
def test_a_demoted_master_starts_as_a_slave_with_an_id_that_is_free(epoch: int, broker_id: int) -> None:
    taken = with_role(MASTER, TenureRecord(False, epoch))
    assert (taken.broker_role, taken.broker_id) == ("SLAVE", broker_id)
    assert not list(contradictions(taken))


@pytest.mark.parametrize("is_master", [False, True])
def test_the_same_role_changes_nothing(is_master: bool) -> None:
    config = MASTER if is_master else SLAVE
    record = TenureRecord(is_master, EPOCH, POLICY)
    assert with_role(config, record) == config
    assert difference(FirstRole.of(config), record) == ""


def test_the_file_of_another_broker_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = config_of(tmp_path, brokerRole="SLAVE", brokerId="2")
    write_tenure(tmp_path, owner_of(other), TenureRecord(True, EPOCH))
    config = config_of(tmp_path, brokerRole="SLAVE", brokerId="1")
    assert take_role(config) == (config, FirstRole.of(config))
    assert "is of broker 2 of broker-a" in caplog.text


def test_a_difference_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = config_of(tmp_path)
    write_tenure(tmp_path, owner_of(config), TenureRecord(False, EPOCH))
    taken, first = take_role(config)
    assert first.is_master and first == FirstRole.of_parameter(first.to_parameter())
    assert (taken.broker_role, first.epoch) == ("SLAVE", EPOCH)
    assert "brokerRole = ASYNC_MASTER and brokerId = 0 do not count" in caplog.text


@pytest.mark.parametrize("configured", [{}, {"brokerRole": "SLAVE", "brokerId": "1"}])
@pytest.mark.parametrize("is_master", [False, True])
def test_a_store_that_is_opened_again_has_the_role_of_the_file(
    tmp_path: Path, is_master: bool, configured: dict[str, str]
) -> None:
    """A death between the configuration in use and the file leaves them apart."""
    config, first = take_role(config_of(tmp_path, **configured))
    between = changed_role(config, first, TenureRecord(not is_master, EPOCH))
    assert take_role(between, first) == (config, first), "there is no file yet"
    write_tenure(tmp_path, first.owner, TenureRecord(is_master, EPOCH))
    again, now = take_role(between, first)
    assert starts_as_slave(again) is not is_master
    assert (now.epoch, now.owner, now.broker_role) == (EPOCH, first.owner, first.broker_role)
    assert take_role(again, now) == (again, now)


@pytest.mark.parametrize("change", ["torn", "newer"])
def test_a_file_that_does_not_tell_the_role_ends_the_start(tmp_path: Path, change: str) -> None:
    config = config_of(tmp_path)
    write_tenure(tmp_path, owner_of(config), TenureRecord(False, EPOCH))
    path = tmp_path / "config" / "ringmqTenure.json"
    content = path.read_text()
    path.write_text(content[:-9] if change == "torn" else json.dumps({**json.loads(content), "version": 2}))
    with pytest.raises(StartError, match="ringmqTenure") as failure:
        take_role(config)
    assert failure.value.status == EXIT_STORE_REFUSED
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(main, ["broker", "--store", str(tmp_path), "--port", "0"])
    assert result.exit_code == EXIT_STORE_REFUSED, result.output
    assert not set(tmp_path.rglob("commitlog")) - set(before)


def word(root: Path) -> Tenure:
    plane = Plane.open(plane_name(root))  # maps what the word is in
    return Tenure.of(int(plane.watermarks.tenure))


def test_a_demoted_master_starts_as_a_slave_of_its_epoch(tmp_path: Path) -> None:
    write_tenure(tmp_path, owner_of(config_of(tmp_path)), TenureRecord(False, EPOCH))
    with RunningBroker(tmp_path, SMALL) as broker:
        assert word(tmp_path) == Tenure(TenureState.SLAVE, EPOCH)
        with RawClient(broker.address) as client:
            assert client.send(SYSTEM_TOPIC, b"body").code != ResponseCode.SUCCESS
        assert broker.stop() == EXIT_CLEAN


def serves_as_master(broker: RunningBroker) -> None:
    with RawClient(broker.address) as client:
        assert client.send(SYSTEM_TOPIC, b"body").code == ResponseCode.SUCCESS
        status = HaStatus.decode(wait_until(lambda: client.ask(RequestCode.HA_STATUS, {}).body, "control answers"))
        assert (status.role, status.broker_id) == ("master", 0)
        topics = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG, {}).body)
        assert topics["dataVersion"]["stateVersion"] == EPOCH


def test_a_promoted_slave_starts_as_a_master_of_its_epoch(tmp_path: Path) -> None:
    """A death of control does not bring the role of the configuration back."""
    settings = {**SMALL, "brokerRole": "SLAVE", "brokerId": "1"}
    write_tenure(tmp_path, owner_of(config_of(tmp_path, **settings)), TenureRecord(True, EPOCH))
    with RunningBroker(tmp_path, settings) as broker:
        assert word(tmp_path) == Tenure(TenureState.MASTER, EPOCH)
        serves_as_master(broker)
        broker.signal_worker("control", signal.SIGKILL)
        serves_as_master(broker)
        assert broker.stop() == EXIT_CLEAN


def test_two_brokers_with_their_roles_exchanged_replicate(tmp_path: Path) -> None:
    """The slave notes the epoch of its master before it reports. Both go on so after another start."""
    shared = {**SMALL, "haAllowedNetworks": "127.0.0.0/8"}
    promoted = {**shared, "brokerRole": "SLAVE", "brokerId": "1"}
    new, old = tmp_path / "new", tmp_path / "old"
    history = (EpochStart(EPOCH, 0),)
    write_tenure(new, owner_of(config_of(new, **promoted)), TenureRecord(True, EPOCH, history=history))
    write_tenure(old, owner_of(config_of(old)), TenureRecord(False, EPOCH - (1 << 16)))
    for body in (b"first", b"second"):
        with (
            RunningBroker(new, promoted) as master,
            RunningBroker(old, shared, namesrv=master.namesrv) as slave,
        ):
            with RawClient(master.address) as client:
                assert client.send(SYSTEM_TOPIC, body).code == ResponseCode.SUCCESS
            wait_until(lambda: end(old) == end(new) > 0, "the slave has the message")
            record = read_tenure(old, owner_of(config_of(old))).record
            assert record is not None
            assert (record.epoch, record.history, record.master.broker) == (EPOCH, history, master.address)
            assert slave.stop() == master.stop() == EXIT_CLEAN


def end(root: Path) -> int:
    return read_watermarks(root).append_offset
