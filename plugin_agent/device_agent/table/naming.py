"""Which resource names a configuration gives. Pure."""

from device_agent.contract.document import Document
from device_agent.contract.template import parse_template
from device_agent.contract.values import dataclass


@dataclass(frozen=True, slots=True)
class Naming:
    """`fixed`: names without placeholders. `domains`: the part before the slash of all other names."""

    fixed: frozenset[str]
    domains: frozenset[str]

    @classmethod
    def of(cls, document: Document) -> "Naming":
        rendered = frozenset(r.name for r in document.resources if parse_template(r.name).names)
        return cls(
            fixed=frozenset(r.name for r in document.resources).difference(rendered),
            domains=frozenset(name.partition("/")[0] for name in rendered),
        )

    def may_give(self, resource: str) -> bool:
        """Whether an entry has the name, or may make it from its placeholders."""
        return resource in self.fixed or resource.partition("/")[0] in self.domains
