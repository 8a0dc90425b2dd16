"""A DevicePluginConfig as somebody wrote it in a file: everything that API server and operator would refuse. Pure."""

from collections.abc import Mapping
from typing import Any

from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec import bounds, vain
from device_operator.spec.model import Spec
from device_operator.spec.parsing import parse_spec


def parse_written(obj: Mapping[str, Any]) -> Spec:
    """The spec of an object from a file.

    Raises:
        InvalidSpecError: with every problem found.
    """
    obj = bounds.without_nulls(obj)
    found: tuple[str, ...] = ()
    spec = None
    try:
        spec = parse_spec(obj)
    except InvalidSpecError as error:
        found = error.problems
    if isinstance(obj.get("spec"), dict):
        told = [problem.partition(": ")[0] for problem in found]
        beyond = bounds.problems(obj["spec"])
        found += tuple(f"{at}: {text}" for at, text in beyond if not any(bounds.is_below(at, path) for path in told))
    if spec is not None:
        found += vain.problems(spec)
    if spec is None or found:
        raise InvalidSpecError(found)
    return spec
