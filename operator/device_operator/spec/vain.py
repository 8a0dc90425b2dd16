"""Finds values that can match nothing, such as `0x10de:0x1eb8` and `loop[0-9]+`, and says how to write them. Pure.

Only a new generation is judged by these rules, not one that was accepted before they existed: its agents serve what
else it has. So the rules are the operator's alone, and agents do not know them.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from device_agent.contract import check, globs
from device_agent.contract.document import Match, Resource

from device_operator.spec.model import Spec

_CHARACTERS: Final = {"h": "0123456789abcdef", "d": "0123456789", "o": "01234567"}
_PART: Final = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """How all values of a kind look. `shapes`: one character for each of the value: h, d and o stand for a hexadecimal,
    decimal and octal digit. `text`: the form, for people.
    """

    what: str
    shapes: tuple[str, ...]
    text: str

    def allows(self, glob: str) -> bool:
        """Whether some value of this form matches the glob."""
        return any(_can_match(glob, shape) for shape in self.shapes)

    def corrected(self, glob: str) -> str:
        """What may be meant, or ''."""
        plain = re.sub(r"0x(?=[0-9a-f*?\[])", "", glob.strip().lower())
        separated = re.sub(r"[\s/-]+", ":", plain)
        for candidate in (plain, separated, f"0000:{plain}", f"{plain}*"):
            if self.allows(candidate):
                return candidate
        return ""


_NUMBER: Final = tuple("d" * n for n in range(1, 8))
_HEX4: Final = Form("id", ("hhhh",), "4 hexadecimal digits in lower case, such as 10de")
_CLASS: Final = Form("class", ("hhhhhh",), "6 hexadecimal digits in lower case, such as 030200")
_SHORT_CLASS: Final = Form("class", ("hhhhhh", "hhhh"), "4 or 6 hexadecimal digits in lower case, such as 0302")
_IDS: Final = Form("id", ("hhhh:hhhh",), "vendor:device in lower-case hex, such as 15b3:1017, or 15b3:*")
_ADDRESS: Final = Form(
    "PCI address", tuple(f"{'h' * n}:hh:hh.o" for n in range(4, 9)), "with its domain, such as 0000:3b:00.0"
)
_DECIMAL: Final = Form("number", _NUMBER, "a decimal number, such as 0")
_FORMS: Final = {
    **{f"{scope}.{name}": _HEX4 for scope in ("pci", "pf") for name in ("vendor", "device")},
    **{f"{scope}.class": _CLASS for scope in ("pci", "pf")},
    **{f"{scope}.address": _ADDRESS for scope in ("pci", "pf")},
    **dict.fromkeys(("usb.vendor", "usb.product"), _HEX4),
    **dict.fromkeys(("numaNode", "pf.numaNode", "iommuGroup", "vfIndex"), _DECIMAL),
}
"""Attribute -> the form of its values."""
_NAMES: Final = frozenset({"name", "driver", "subsystem", "path", "pci.driver", "pf.driver", "pf.netName"})
"""Attributes that the kernel or udev names. Others may hold any text."""

_REGULAR: Final = re.compile(r"\]\+|\]\{\d|\\[dws.]|^\^|\$$|\([^()]*\|")
"""What regular expressions have, and names do not."""
_RANGE: Final = re.compile(r"([^#]+)#(\d)(?:-(\d))?")
"""Virtual functions as the SR-IOV plugin writes them."""
_SHELL: Final = re.compile(r"\$(\{[A-Za-z][^{}]*\})")


def problems(spec: Spec) -> tuple[str, ...]:
    """One line for each value: the field's path, what is wrong, how to correct it."""
    found: list[str] = []
    for index, resource in enumerate(spec.resources):
        where = f"spec.resources[{index}]"
        found += _sources(resource, where)
        for field, match in globs.matches_of(resource):
            found += _match(match, f"{where}.{field}.values")
        found += _templates(resource, where)
    for i, rule in enumerate(spec.cordon):
        found += _match(rule.match, f"spec.cordon[{i}].match.values")
    return tuple(found)


def _sources(resource: Resource, where: str) -> Iterator[str]:
    for i, entry in enumerate(resource.devices):
        if entry.pci is not None:
            at = f"{where}.devices[{i}].pci"
            yield from _of_form(entry.pci.ids, _IDS, f"{at}.ids")
            yield from _of_form(entry.pci.classes, _SHORT_CLASS, f"{at}.classes")
            yield from _of_form(entry.pci.addresses, _ADDRESS, f"{at}.addresses")
    values_of_matches = {f"{field}.values" for field, _ in globs.matches_of(resource)}
    for field, texts in globs.every(resource):
        if field not in values_of_matches:
            yield from _of_names(texts, f"{where}.{field}")


def _match(match: Match, at: str) -> Iterator[str]:
    if form := _FORMS.get(match.attribute):
        yield from _of_form(match.values, form, at)
    elif match.attribute in _NAMES:
        yield from _of_names(match.values, at)


def _of_form(texts: Iterable[str], form: Form, at: str) -> Iterator[str]:
    for text in texts:
        if not form.allows(text):
            near = form.corrected(text)
            cure = f"write {near!r}" if near else f"it must be {form.text}"
            yield f"{at}: {text!r:.80} matches no {form.what}: {cure}"


def _of_names(texts: Iterable[str], at: str) -> Iterator[str]:
    for text in texts:
        if functions := _RANGE.fullmatch(text):
            name, first, last = functions.groups()
            values = f"[{first}-{last}]" if last else first
            yield (
                f"{at}: {text!r:.80} matches no name: write {name!r}, and choose virtual functions by "
                f"include: [{{attribute: vfIndex, values: [{values!r}]}}]"
            )
        elif _REGULAR.search(text):
            yield (
                f"{at}: {text!r:.80} is a regular expression, and this is a glob (*, ?, [abc]): "
                f"write {_as_glob(text)!r}; a character in brackets, such as [+], stands for itself"
            )


def _as_glob(text: str) -> str:
    """The glob that may be meant."""
    plain = text.removeprefix("^").removesuffix("$").replace("\\d", "[0-9]").replace("\\w", "?").replace("\\s", "?")
    plain = re.sub(r"\][+*]|\]\{[^}]*\}", "]*", plain).replace(".*", "*").replace(".+", "?*").replace("\\.", ".")
    return re.sub(r"\(([^()|]*)\|[^()]*\)", r"\1", plain).replace("\\", "")


def _templates(resource: Resource, where: str) -> Iterator[str]:
    for field, text in check.templates_of(resource):
        if shell := _SHELL.search(text):
            yield (
                f"{where}.{field}: {text!r:.80}: '$' stands before a placeholder and would stay in the value: "
                f"write {shell[1]}"
            )


def _can_match(glob: str, shape: str) -> bool:
    """Whether a text of the shape matches the glob, by fnmatch's rules."""
    at = {0}
    for part in _PART.findall(glob):
        if part == "*":
            at = set(range(min(at, default=len(shape) + 1), len(shape) + 1))
            continue
        fits = re.compile(fnmatch.translate(part)).match
        at = {i + 1 for i in at if i < len(shape) and any(map(fits, _CHARACTERS.get(shape[i], shape[i])))}
    return len(shape) in at
