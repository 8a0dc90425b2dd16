"""A faster `dataclass(frozen=True, slots=True)`: it behaves as the standard one. Making a class is five times as fast.

`dataclasses` writes and compiles six methods for each class. The agent's classes would add 50 ms to its start.
Here the methods that refuse changes are shared by all classes. All other methods are made at their first call:
`__init__` by this module, comparison, hash and text by `dataclasses`.

Type checkers see the standard decorator. `fields`, `replace` and copies work as usual.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

__all__ = ["dataclass"]

T = TypeVar("T")


def _value(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    assert frozen
    assert slots

    def made(cls: type[T]) -> type[T]:
        # for a class without a docstring `dataclasses` would compute its signature, which is slow
        cls.__doc__ = cls.__doc__ or cls.__name__
        value = dataclasses.dataclass(slots=True, init=False, eq=False, repr=False, kw_only=kw_only)(cls)
        for name, method in _SHARED.items():
            if cls.__dict__.get(name) is None:
                setattr(value, name, method)
        value.__init__ = _late_init(value)  # type: ignore[method-assign]
        return value

    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _value


def _late_init(cls: type) -> Callable[..., None]:
    """An `__init__` that makes the real one at its first call, and replaces itself by it."""

    def first(self: object, *arguments: Any, **named: Any) -> None:
        init = _init(cls)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *arguments, **named)

    return first


def _init(cls: type) -> Callable[..., None]:
    """An `__init__` that sets each field through its slot, because `__setattr__` refuses."""
    # a field with one of these names would replace the value that the generated lines need
    absent, setter, default, make = "__value_absent", "__value_set_", "__value_default_", "__value_make_"
    names: dict[str, Any] = {absent: object()}
    positional: list[str] = []
    keyword: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name, text, value = field.name, field.name, field.name
        names[setter + name] = getattr(cls, name).__set__
        if field.default is not dataclasses.MISSING:
            names[default + name] = field.default
            text = f"{name}={default}{name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[make + name] = field.default_factory
            text, value = f"{name}={absent}", f"{make}{name}() if {name} is {absent} else {name}"
        (keyword if field.kw_only else positional).append(text)
        lines.append(f" {setter}{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({parameters}):\n" + ("\n".join(lines) or " pass"), names)  # noqa: S102 - as `dataclasses` does
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _refuse_to_set(_: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """The values of the fields. Copies and pickles need this, because they cannot set fields in the usual way."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _late(name: str) -> Callable[..., Any]:
    """A method that, at its first call, has `dataclasses` make the real one and then calls that."""

    def method(self: object, *others: object) -> Any:
        for cls in type(self).__mro__:
            if cls.__dict__.get(name) is _SHARED[name]:
                _complete(cls)
        return getattr(type(self), name)(self, *others)

    return method


_LATE = ("__eq__", "__hash__", "__repr__")
_SHARED: dict[str, Callable[..., Any]] = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _restore,
    **{name: _late(name) for name in _LATE},
}


def _complete(cls: type) -> None:
    fields = [
        (field.name, field.type, dataclasses.field(compare=field.compare, hash=field.hash, repr=field.repr))
        for field in dataclasses.fields(cls)
    ]
    full = dataclasses.make_dataclass(cls.__name__, fields, init=False, unsafe_hash=True)
    for name in _LATE:
        if cls.__dict__.get(name) is _SHARED[name]:
            setattr(cls, name, getattr(full, name))
