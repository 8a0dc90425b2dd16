"""The device table: the one state of the agent, from which everything it tells anybody is read. Pure.

Exports: `device_table` (events in, answers out), `snapshot` and `holders` (its values), `claims`; the other modules are
its rules, functions from values to values.
May import allocate, health, select and what is below them; it does no I/O and has no clock.
"""
