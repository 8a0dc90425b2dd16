"""The device table: the agent's only state. Every list and every report is made from it. Pure.

Exports: `device_table` (events in, answers out; the questions are in `answers`), `snapshot`, `device` and `holders`
(its values), `kubelet_view` (its `Reading` is one look at the kubelet's record), `memory` (what the node store keeps of
it), `grants` (what containers were given), `cordons` (what admins withhold). The other modules are its rules: functions
from values to values. CONTRIBUTING.md has a glossary of its words.
May import allocate, health, select and what is below them. It does no I/O and has no clock.
"""
