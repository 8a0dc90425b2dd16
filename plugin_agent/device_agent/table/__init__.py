"""The device table: the one state of the agent, from which everything it tells anybody is read. Pure.

Exports: `device_table` (events in, answers out), `snapshot` and `holders` (its values), `memory` (what the node store
keeps of it), `claims`. The other modules are its rules: functions from values to values.
May import allocate, health, select and what is below them. It does no I/O and has no clock.
"""
