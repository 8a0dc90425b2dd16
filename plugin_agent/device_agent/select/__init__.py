"""From what was found and what is configured to allocatable units. Pure.

Exports: `found` (what sources hand over), `selection` (which entry owns which find), `unit` (the result), `description`
(the result as JSON), `places` (an index of sysfs paths), `kernel_names`. May import store, contract and runtime; it
does no I/O and names no source.
"""
