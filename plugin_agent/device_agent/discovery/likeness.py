"""Which name an admin may have meant, for the message of an entry that finds nothing. Pure."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from device_agent.select.kernel_names import is_literal

_CUTOFF: Final = 0.65
_MOST: Final = 2000
"""Names that are compared: a directory may hold many, and each scan looks again."""


def meant(texts: Iterable[str], known: Iterable[str]) -> str:
    """`: did you mean x?` for the first of the texts that resembles a known name; '' if none does, or one is known.

    Globs are not compared.
    """
    import difflib  # noqa: PLC0415 an agent that finds its devices does without it

    names = {name.casefold(): name for name in islice(known, _MOST)}
    for text in texts:
        if is_literal(text) and (near := difflib.get_close_matches(text.casefold(), names, n=1, cutoff=_CUTOFF)):
            return f": did you mean {names[near[0]]}?" if names[near[0]] != text else ""
    return ""
