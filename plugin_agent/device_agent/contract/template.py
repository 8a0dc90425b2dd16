"""Values with `{attribute}` placeholders. They are parsed once and rendered for each device."""

import re
from collections.abc import Mapping
from typing import Final

from device_agent.contract.values import dataclass

POSITION: Final = "position"
"""`{position}`: the device's number within the container, from 0."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z0-9._:@+/*-]+)*")


class TemplateError(ValueError):
    """The text is not a valid template. The message says where, and how to correct it."""


class MissingAttributeError(LookupError):
    """The device lacks the attribute that `args[0]` names."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed value. `parts`: literals and attribute names in turn: literal, name, literal, …"""

    text: str
    parts: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Attribute names in order of appearance, `position` included."""
        return self.parts[1::2]

    @property
    def prefix(self) -> str:
        """The literal before the first placeholder."""
        return self.parts[0]

    def render(self, attributes: Mapping[str, str], *, position: int = 0) -> str:
        """The text for one device.

        Raises:
            MissingAttributeError: an attribute is absent.
        """
        out = [self.parts[0]]
        for name, literal in zip(self.parts[1::2], self.parts[2::2], strict=True):
            if name == POSITION:
                out.append(str(position))
            else:
                value = attributes.get(name)
                if value is None:
                    raise MissingAttributeError(name)
                out.append(value)
            out.append(literal)
        return "".join(out)


def parse_template(text: str) -> Template:
    """Parses `text`: `{name}` is a placeholder, `{{` and `}}` are literal braces.

    Raises:
        TemplateError: a brace without its partner, or an empty or ill-formed name.
    """
    parts: list[str] = [""]
    at = 0
    for token in _TOKEN.finditer(text):
        parts[-1] += text[at : token.start()]
        at = token.end()
        if token[0] in ("{{", "}}"):
            parts[-1] += token[0][0]
        elif token[1] is None:
            raise TemplateError(f"{text!r} has a single {token[0]!r}: write {token[0] * 2!r} for a literal brace")
        elif not _NAME.fullmatch(token[1]):
            raise TemplateError(
                f"{text!r}: {token[0]!r} is not an attribute name: write it as {{pci.address}} or {{attr.<file>}}, "
                "or {{ and }} for literal braces"
            )
        else:
            parts += [token[1], ""]
    parts[-1] += text[at:]
    return Template(text=text, parts=tuple(parts))
