"""What containers were given, by the kubelet's own record. Values alone."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import dataclasses

from device_agent.allocate.grant import GrantedDevice, GrantNote
from device_agent.contract.values import dataclass
from device_agent.table.device import Key
