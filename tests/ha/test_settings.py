"""The cores' settings are the broker's properties."""

from ringmq.broker.config.broker_config import BrokerConfig, property_table
from ringmq.ha.settings import HaSettings


def test_every_property_is_the_brokers_with_its_default() -> None:
    of_broker = BrokerConfig().as_properties()
    names = HaSettings.property_names()
    assert not set(names.values()) - set(property_table())
    assert HaSettings.from_properties(of_broker) == HaSettings()
    assert HaSettings.from_properties({}) == HaSettings()


def test_text_becomes_what_the_cores_need() -> None:
    settings = HaSettings.from_properties(
        {
            "inSyncReplicas": "3",
            "enableAutoInSyncReplicas": "true",
            "haReplicaRooms": "2=west;10.0.0.9=east",
            "haAllowedReplicas": "1; 10.0.0.9",
            "haAllowedNetworks": "10.0.0.0/24",
            "somethingElse": "x",
        }
    )
    assert settings.in_sync_replicas == 3
    assert settings.enable_auto_in_sync_replicas is True
    assert settings.replica_rooms == (("2", "west"), ("10.0.0.9", "east"))
    assert settings.allowed_replicas == ("1", "10.0.0.9")
    assert settings.allowed_networks.names("10.0.0.9")
