"""Node selection and taints against the scheduler's rules, and quantities against Kubernetes' own forms."""

from decimal import Decimal

import pytest
from device_operator.spec.agent_settings import quantity
from device_operator.spec.scheduling import (
    EVERY_TAINT,
    Effect,
    Expression,
    Operator,
    Taint,
    Term,
    Toleration,
    TolerationOperator,
    keeping_away,
    selects,
)
from hypothesis import given
from hypothesis import strategies as st

KEYS, VALUES = ["a", "b", "c"], ["1", "2", "x", "30", "007", ""]  # as labels may be: none begins with a sign


def naive(term: Term, name: str, labels: dict[str, str]) -> bool:
    """The rules once more, as the API's documentation words them."""
    if not term.match_expressions and not term.match_fields:
        return False
    for expression in term.match_expressions:
        has = expression.key in labels
        value = labels.get(expression.key, "")
        match expression.operator:
            case "In":
                holds = has and value in expression.values
            case "NotIn":
                holds = not has or value not in expression.values
            case "Exists":
                holds = has
            case "DoesNotExist":
                holds = not has
            case _:
                try:
                    number, bound = int(value), int(expression.values[0])
                except ValueError:
                    holds = False
                else:
                    holds = has and (number > bound if expression.operator == "Gt" else number < bound)
        if not holds:
            return False
    return all((name in f.values) == (f.operator == "In") for f in term.match_fields)


expressions = st.one_of(
    st.builds(
        Expression,
        st.sampled_from(KEYS),
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Expression, st.sampled_from(KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        Expression,
        st.sampled_from(KEYS),
        st.sampled_from([Operator.GT, Operator.LT]),
        st.sampled_from([("1",), ("0",), ("20",)]),
    ),
)
fields = st.builds(
    Expression,
    st.just("metadata.name"),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.sampled_from([("node-1",), ("node-2",)]),
)
terms = st.builds(Term, st.lists(expressions, max_size=3).map(tuple), st.lists(fields, max_size=1).map(tuple))
label_maps = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@given(
    selector=label_maps,
    given_terms=st.lists(terms, max_size=3),
    labels=label_maps,
    name=st.sampled_from(["node-1", "node-2"]),
)
def test_nodes_are_selected_as_kubernetes_documents(
    selector: dict[str, str], given_terms: list[Term], labels: dict[str, str], name: str
):
    wanted = selector.items() <= labels.items() and (
        not given_terms or any(naive(term, name, labels) for term in given_terms)
    )
    assert selects(selector=selector, terms=given_terms, name=name, labels=labels) == wanted


@pytest.mark.parametrize(
    ("taint", "toleration", "kept_away"),
    [
        (Taint("a", "b"), None, True),
        (Taint("a", "b", "PreferNoSchedule"), None, False),
        (Taint("a", "b", "NoExecute"), None, True),
        (Taint("a", "b"), Toleration("a", value="b"), False),
        (Taint("a", "b"), Toleration("a", value="c"), True),
        (Taint("a", "b"), Toleration("a", TolerationOperator.EXISTS), False),
        (Taint("a", "b"), Toleration("b", TolerationOperator.EXISTS), True),
        (Taint("a", "b"), Toleration("a", TolerationOperator.EXISTS, effect=Effect.NO_EXECUTE), True),
        (Taint("a", "b"), EVERY_TAINT[0], False),
        (Taint("node.kubernetes.io/unschedulable"), None, False),
        (Taint("node.kubernetes.io/not-ready", effect="NoExecute"), None, False),
        (Taint("node.kubernetes.io/network-unavailable"), None, True),
    ],
)
def test_taints_keep_a_daemonsets_pod_away_unless_tolerated(
    taint: Taint, toleration: Toleration | None, *, kept_away: bool
):
    assert bool(keeping_away([taint], [toleration] if toleration else [])) == kept_away


def test_a_taint_reads_as_kubectl_writes_it():
    assert str(Taint("gpu", "true", "NoSchedule")) == "gpu=true:NoSchedule"
    assert str(Taint("gpu", effect="NoExecute")) == "gpu:NoExecute"


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", Decimal(1)),
        ("0.5", Decimal("0.5")),
        (".5", Decimal("0.5")),
        ("100m", Decimal("0.1")),
        ("64Mi", Decimal(64 * 1024 * 1024)),
        ("1.5Gi", Decimal(1536 * 1024 * 1024)),
        ("2k", Decimal(2000)),
        ("1e3", Decimal(1000)),
        ("12E", Decimal(12) * 10**18),
        ("64MB", None),
        ("", None),
        ("Mi", None),
        ("-1", None),
        ("1 Gi", None),
    ],
)
def test_quantities(text: str, amount: Decimal | None):
    assert quantity(text) == amount
