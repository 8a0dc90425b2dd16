"""Our `dataclass` behaves as the standard decorator, which type checkers see in its place."""

import copy
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from device_agent.contract import values
from hypothesis import given
from hypothesis import strategies as st

AGENT = Path(__file__).parents[3] / "plugin_agent" / "device_agent"

Decorator = Callable[..., Callable[[type], type]]


def shapes(decorator: Decorator) -> dict[str, type]:
    """One class of each kind that the agent has."""

    @decorator(frozen=True, slots=True)
    class Plain:
        """Some words."""

        a: int
        b: str = "b"
        c: tuple[int, ...] = ()

        @property
        def double(self) -> int:
            return 2 * self.a

    @decorator(frozen=True, slots=True)
    class Made:
        a: dict[str, int] = dataclasses.field(default_factory=dict)
        b: int = dataclasses.field(default=3, kw_only=True)

    @decorator(frozen=True, slots=True)
    class Odd:
        a: int
        b: int = dataclasses.field(default=0, compare=False, repr=False)

        def __repr__(self) -> str:
            return f"odd {self.a}"

    @decorator(frozen=True, slots=True)
    class Checked:
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError(self.a)

    @decorator(frozen=True, slots=True)
    class Empty:
        pass

    @decorator(frozen=True, slots=True, kw_only=True)
    class Named:
        a: int
        b: str = "b"

    return {cls.__name__: cls for cls in (Plain, Made, Odd, Checked, Empty, Named)}


OURS, STANDARD = shapes(values.dataclass), shapes(dataclasses.dataclass)
CALLS = st.one_of(
    st.tuples(st.just("Plain"), st.lists(st.integers(0, 2), max_size=4), st.just({})),
    st.tuples(st.just("Plain"), st.just([1]), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))),
    st.tuples(st.just("Made"), st.lists(st.just({"x": 1}), max_size=2), st.just({})),
    st.tuples(st.just("Made"), st.just([]), st.dictionaries(st.sampled_from("ab"), st.integers(0, 2))),
    st.tuples(st.just("Odd"), st.lists(st.integers(0, 2), min_size=1, max_size=2), st.just({})),
    st.tuples(st.just("Checked"), st.lists(st.integers(-1, 1), max_size=1), st.just({})),
    st.tuples(st.just("Named"), st.lists(st.just(1), max_size=1), st.just({})),
    st.tuples(st.just("Named"), st.just([]), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2))),
    st.tuples(st.just("Empty"), st.lists(st.just(1), max_size=1), st.just({})),
)


def outcome(work: Callable[[], object]) -> object:
    """The result of the call, or the type of its error."""
    try:
        return work()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error)


def told(made: Any) -> object:
    """The text, fields, hash and dict of a value."""
    if isinstance(made, type):
        return made
    fields = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
    return (repr(made), fields, outcome(lambda: hash(made)), outcome(lambda: dataclasses.asdict(made)))


@given(CALLS, CALLS)
def test_values_equal_those_of_the_standard_decorator(first: Any, second: Any) -> None:
    pairs = []
    for classes in (OURS, STANDARD):
        one, other = (outcome(lambda c=call, k=classes: k[c[0]](*c[1], **c[2])) for call in (first, second))
        pairs.append((told(one), told(other), one == other, one != other))
    assert pairs[0] == pairs[1]


@pytest.mark.parametrize("name", OURS)
def test_classes_have_the_attributes_of_standard_dataclasses(name: str) -> None:
    ours, standard = OURS[name], STANDARD[name]
    assert ours.__match_args__ == standard.__match_args__
    assert ours.__slots__ == standard.__slots__
    assert [(f.name, f.type, f.kw_only) for f in dataclasses.fields(ours)] == [
        (f.name, f.type, f.kw_only) for f in dataclasses.fields(standard)
    ]


@pytest.mark.parametrize("classes", [OURS, STANDARD], ids=["ours", "standard"])
def test_a_value_cannot_be_changed(classes: dict[str, type]) -> None:
    made = classes["Plain"](1)
    for work in (lambda: setattr(made, "a", 2), lambda: delattr(made, "a")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            work()
    assert dataclasses.replace(made, b="x") == classes["Plain"](1, "x")
    assert made.double == 2
    assert copy.copy(made) == copy.deepcopy(made) == made


def test_a_value_only_equals_values_of_its_own_class() -> None:
    assert OURS["Plain"](1) != STANDARD["Plain"](1)
    assert OURS["Plain"].__eq__(OURS["Plain"](1), 1) is NotImplemented


def test_the_agent_uses_our_decorator_for_frozen_classes() -> None:
    found = 0
    for path in AGENT.rglob("*.py"):
        text = path.read_text()
        if path.relative_to(AGENT).parts[0] != "runtime" and re.search(
            r"^@(dataclasses\.)?dataclass\(frozen=True, slots=True(, kw_only=True)?\)$", text, re.MULTILINE
        ):
            found += 1
            assert "from device_agent.contract.values import dataclass\n" in text, path
    assert found > 20


def test_field_names_do_not_collide_with_names_in_the_made_init() -> None:
    @values.dataclass(frozen=True, slots=True)
    class Named:
        absent: tuple[int, ...] = dataclasses.field(default_factory=tuple)
        set_other: int = 1
        default_other: int = 2
        make_other: int = 3
        other: int = 4

    made = Named(absent=(1,), set_other=5, default_other=6, make_other=7)
    assert dataclasses.astuple(made) == ((1,), 5, 6, 7, 4)
    assert dataclasses.replace(made, other=8).absent == (1,)
