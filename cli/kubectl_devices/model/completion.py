"""What may stand at the end of a command line that is being typed. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubectl_devices.model.fleet import Device


@dataclass(frozen=True, slots=True)
class Flag:
    """`dest`: its name among the options. `choices`: all values, if they are fixed."""

    dest: str
    takes_value: bool
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """A command. `positionals`: their names; the last one may be repeated. `flags`: by spelling."""

    name: str
    help: str
    positionals: tuple[str, ...]
    flags: Mapping[str, Flag]


@dataclass(frozen=True, slots=True)
class Asked:
    """`fixed`: candidates that need no cluster. `kind`: of which names of the cluster are candidates too, or ''.

    `given`: values that stand on the line already, by their names. `files`: names of files are candidates.
    """

    prefix: str
    fixed: tuple[str, ...] = ()
    kind: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    files: bool = False


_FILES = frozenset({"filename", "tree", "kubeconfig"})


def asked(shapes: Iterable[Shape], words: Sequence[str]) -> Asked:
    """`words`: the line after `kubectl devices`; the last word is being typed and may be empty."""
    commands = {shape.name: shape for shape in shapes}
    *before, prefix = words or ("",)
    command, rest = _command(next(iter(commands.values())), before)
    if not command:
        shape = Shape("", "", (), next(iter(commands.values())).flags)
    elif command in commands:
        shape = commands[command]
    else:
        return Asked(prefix)
    given, place, pending = _given(shape, rest)
    name, equals, value = prefix.partition("=")
    if pending is None and equals and name in shape.flags:
        return _value(shape.flags[name], value, given, start=f"{name}=")
    if pending is not None:
        return _value(pending, prefix, given)
    if not command and not prefix.startswith("-"):
        return Asked(prefix, tuple(f"{shape.name}\t{shape.help}" for shape in commands.values()))
    if prefix.startswith("-"):
        return Asked(prefix, tuple(sorted(shape.flags)))
    if not shape.positionals:
        return Asked(prefix)
    kind = shape.positionals[min(place, len(shape.positionals) - 1)]
    return Asked(prefix, kind=kind, given=given)


def names(kind: str, devices: Iterable[Device], *, node: str = "") -> tuple[str, ...]:
    """The candidates of a kind, from all devices: node, config, resource, device, or name (a device or a pod)."""
    found: set[str] = set()
    for device in devices:
        if kind == "node":
            found.add(device.node)
        elif kind == "config":
            found.add(device.config)
        elif kind == "resource":
            found.add(device.resource)
        elif kind in ("device", "name") and node in ("", device.node):
            found.add(device.id)
            if kind == "name":
                found.update(f"pod/{holder.pod}" for holder in device.holders)
    return tuple(sorted(found))


def _command(any_shape: Shape, words: Sequence[str]) -> tuple[str, list[str]]:
    """(the command, all other words); flags of all commands may stand before it."""
    takes = False
    for n, word in enumerate(words):
        if takes:
            takes = False
        elif word.startswith("-"):
            flag = any_shape.flags.get(word)
            takes = flag is not None and flag.takes_value
        else:
            return word, [*words[:n], *words[n + 1 :]]
    return "", list(words)


def _given(shape: Shape, words: Iterable[str]) -> tuple[dict[str, str], int, Flag | None]:
    """(values by name, number of positionals, the flag whose value is being typed)."""
    given: dict[str, str] = {}
    place, pending = 0, None
    for word in words:
        if pending is not None:
            given[pending.dest] = word
            pending = None
        elif word.startswith("-") and word != "-":
            name, equals, value = word.partition("=")
            flag = shape.flags.get(name)
            if flag is not None and flag.takes_value:
                if equals:
                    given[flag.dest] = value
                else:
                    pending = flag
        else:
            if shape.positionals:
                given.setdefault(shape.positionals[min(place, len(shape.positionals) - 1)], word)
            place += 1
    return given, place, pending


def _value(flag: Flag, prefix: str, given: Mapping[str, str], *, start: str = "") -> Asked:
    if flag.choices:
        return Asked(start + prefix, tuple(start + choice for choice in flag.choices))
    if flag.dest in _FILES:
        return Asked(prefix, files=True)
    return Asked(prefix, kind=flag.dest, given=given)
