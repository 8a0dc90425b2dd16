"""The core works the same for every driver, so its code names no vendor. Comments and docstrings may, as examples."""

import io
import re
import tokenize
from pathlib import Path

import device_agent
import pytest

AGENT = Path(device_agent.__file__).parent
VENDOR = re.compile(r"nvml|nvidia|xid|gpu|mig\b", re.IGNORECASE)


def code(path: Path) -> str:
    """The identifiers and strings of a module, without comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    kept = [t.string for t in tokens if t.type in (tokenize.NAME, tokenize.STRING) and not t.string.startswith('"""')]
    return " ".join(kept)


@pytest.mark.parametrize("room", ["table", "allocate", "health", "store"])
def test_the_code_of_the_core_names_no_vendor(room: str) -> None:
    modules = sorted((AGENT / room).glob("*.py"))
    assert modules
    named = {path.name: VENDOR.findall(code(path)) for path in modules}
    assert {name: found for name, found in named.items() if found} == {}
