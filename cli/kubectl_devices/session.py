"""What every command has: its flags, the output, and the cluster, which is reached when a command first asks for it."""

import argparse
from dataclasses import dataclass, field

from kubectl_devices.cluster.api import Api
from kubectl_devices.cluster.connection import Connection, Target, connect
from kubectl_devices.cluster.kinds import CONFIGS, INVENTORIES
from kubectl_devices.cluster.operator import Installation, find
from kubectl_devices.cluster.reading import Reader
from kubectl_devices.errors import CliError
from kubectl_devices.model import fleet
from kubectl_devices.output import Output


@dataclass(slots=True)
class Session:
    options: argparse.Namespace
    out: Output
    target: Target
    _connection: Connection | None = field(default=None, init=False)
    _reader: Reader | None = field(default=None, init=False)

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self.target)
        return self._connection

    @property
    def api(self) -> Api:
        return self.connection.api

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = Reader(self.api)
        return self._reader

    def installation(self) -> Installation:
        return find(self.reader, namespace=self.options.operator_namespace)

    def inventories(self) -> tuple[fleet.Inventory, ...] | None:
        """None if the user may not list them."""
        found = self.reader.items(INVENTORIES, lost="devices are shown as the DevicePluginConfigs have them")
        return None if found is None else tuple(map(fleet.read_inventory, found))

    def fleet(self) -> fleet.Fleet:
        """All devices, in as much detail as the user may see.

        Raises:
            CliError: the user may read neither kind.
        """
        inventories = self.inventories()
        if inventories is not None:
            return fleet.from_inventories(inventories)
        configs = self.reader.items(CONFIGS, lost="no devices are shown")
        if configs is None and self.reader.gaps:
            raise CliError(
                "you may list neither nodedeviceinventories.device-operator.io nor "
                "devicepluginconfigs.device-operator.io; ask for the ClusterRole device-operator-maintainer, "
                "or for the verb list on the two"
            )
        return fleet.from_configs(configs or ())

    def tell_gaps(self) -> None:
        if self._reader is not None:
            self.out.notes(self._reader.gaps)
