"""Node selection and taints by the rules of the scheduler: the operator expects pods where the scheduler allows them.

The rules are those of kubernetes staging/src/k8s.io/component-helpers/scheduling/corev1 (nodeaffinity, tolerations)
and, for values that the API server refuses, pkg/apis/core/validation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

OS_LABEL: Final = "kubernetes.io/os"
NODE_NAME_FIELD: Final = "metadata.name"

_LABEL_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
SUBDOMAIN: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
"""Pattern of a DNS subdomain, as most names of objects are; 253 characters at most."""
_LABEL_KEY = re.compile(rf"(?:{SUBDOMAIN}/)?{_LABEL_NAME}")
_LABEL_VALUE = re.compile(rf"(?:{_LABEL_NAME})?")
_INTEGER = re.compile(r"[0-9]{1,18}")
"""Without a sign, because a label value cannot start with one. The scheduler reads 64 bits."""


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class TolerationOperator(StrEnum):
    EQUAL = "Equal"
    EXISTS = "Exists"


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Expression:
    """`key`: a label, or metadata.name in `match_fields`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """Expressions of labels and of metadata.name, ANDed; an empty term matches nothing."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """`effect` None: every effect; `key` empty (with Exists): every taint."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: Effect | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    """`effect`: NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str = ""
    effect: str = Effect.NO_SCHEDULE

    def __str__(self) -> str:
        """As kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


EVERY_TAINT: Final = (Toleration(operator=TolerationOperator.EXISTS),)
DAEMONSET_TOLERATIONS: Final = (
    *(
        Toleration(key=f"node.kubernetes.io/{key}", operator=TolerationOperator.EXISTS, effect=Effect.NO_EXECUTE)
        for key in ("not-ready", "unreachable")
    ),
    *(
        Toleration(key=f"node.kubernetes.io/{key}", operator=TolerationOperator.EXISTS, effect=Effect.NO_SCHEDULE)
        for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
"""What the DaemonSet controller adds to each pod (pkg/controller/daemon/util AddOrUpdateDaemonPodTolerations)."""


def selects(*, selector: Mapping[str, str], terms: Iterable[Term], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node passes the selector and at least one term (no terms: the selector alone)."""
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = tuple(terms)
    return not terms or any(_term(term, name, labels) for term in terms)


def _term(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {NODE_NAME_FIELD: name}
    return all(_expression(e, labels) for e in term.match_expressions) and all(
        _expression(e, fields) for e in term.match_fields
    )


def _expression(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case Operator.IN:
            return value in expression.values
        case Operator.NOT_IN:
            return value not in expression.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
    if value is None or not _INTEGER.fullmatch(value):
        return False
    bound = int(expression.values[0])
    return int(value) > bound if expression.operator is Operator.GT else int(value) < bound


def keeping_away(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> tuple[Taint, ...]:
    """The taints that keep a DaemonSet's pod with these tolerations off the node."""
    every = (*tolerations, *DAEMONSET_TOLERATIONS)
    return tuple(
        taint
        for taint in taints
        if taint.effect != Effect.PREFER_NO_SCHEDULE and not any(_tolerates(t, taint) for t in every)
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect is not None and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator is TolerationOperator.EXISTS or toleration.value == taint.value


def label_key_problem(key: str) -> str | None:
    if len(key.rpartition("/")[0]) > 253 or not _LABEL_KEY.fullmatch(key):
        return f"{key!r} is no label key: [dns.name/]name, the name of at most 63 letters, digits, '-', '_', '.'"
    return None


def label_value_problem(value: str) -> str | None:
    if not _LABEL_VALUE.fullmatch(value):
        return f"{value!r} is no label value: at most 63 letters, digits, '-', '_', '.', alphanumeric at both ends"
    return None


def selector_problems(selector: Mapping[str, str], at: str) -> Iterator[str]:
    for key, value in selector.items():
        if problem := label_key_problem(key) or label_value_problem(value):
            yield f"{at}: {problem}"
        elif key == OS_LABEL and value != "linux":
            yield f"{at}: {OS_LABEL} is {value!r}; agents run on Linux nodes only, remove it"


def term_problems(term: Term, at: str) -> Iterator[str]:
    if not term.match_expressions and not term.match_fields:
        yield f"{at}: is empty, and an empty term matches no node; remove it or add matchExpressions"
    for i, expression in enumerate(term.match_expressions):
        where = f"{at}.matchExpressions[{i}]"
        if problem := label_key_problem(expression.key):
            yield f"{where}.key: {problem}"
        yield from _expression_problems(expression, where)
    for i, field in enumerate(term.match_fields):
        where = f"{at}.matchFields[{i}]"
        if field.key != NODE_NAME_FIELD:
            yield f"{where}.key: {field.key!r} must be {NODE_NAME_FIELD}, the only field of nodes to select by"
        if field.operator not in (Operator.IN, Operator.NOT_IN) or len(field.values) != 1:
            yield f"{where}: needs operator In or NotIn and exactly one value; use one term per node name"
        elif not re.fullmatch(SUBDOMAIN, field.values[0]):
            yield f"{where}.values: {field.values[0]!r} is no name of a node: write it as kubectl get nodes does"


def _expression_problems(expression: Expression, at: str) -> Iterator[str]:
    operator, values = expression.operator, expression.values
    if operator in (Operator.IN, Operator.NOT_IN):
        if not values:
            yield f"{at}.values: operator {operator} needs at least one value"
        for value in values:
            if problem := label_value_problem(value):
                yield f"{at}.values: {problem}"
    elif operator in (Operator.GT, Operator.LT):
        if len(values) != 1 or not _INTEGER.fullmatch(values[0]):
            yield f"{at}.values: operator {operator} needs exactly one whole number without a sign, as a string"
    elif values:
        yield f"{at}.values: operator {operator} takes no values; remove them"


def toleration_problems(toleration: Toleration, at: str) -> Iterator[str]:
    exists = toleration.operator is TolerationOperator.EXISTS
    if not toleration.key and not exists:
        yield f"{at}: without key it needs operator Exists, which tolerates every taint; or name the taint's key"
    if toleration.key and (problem := label_key_problem(toleration.key)):
        yield f"{at}.key: {problem}"
    if exists and toleration.value:
        yield f"{at}.value: operator Exists takes no value; remove it, or use Equal"
    elif problem := label_value_problem(toleration.value):
        yield f"{at}.value: {problem}"
    if toleration.toleration_seconds is not None and toleration.effect is not Effect.NO_EXECUTE:
        yield f"{at}.tolerationSeconds: needs effect NoExecute; set that effect, or remove the field"
