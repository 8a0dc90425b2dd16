"""From what was found and what is configured to allocatable units. Pure.

Exports: `found` (what sources find), `selection` (which entry owns which find), `unit` (the result), `kernel_names`.
May import store, contract and runtime; it does no I/O.
"""
