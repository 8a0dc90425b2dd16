"""What the status of a DevicePluginConfig says: spec and observations in, JSON out. Pure.

Exports: `observed` and `pools` (the values it reads), `summary` (the whole status), `conditions`, `nodes`, `conflicts`
(found in the reports of agents), `rollout` (which pool gets a new spec now), `notices` (Events), `pacing` (when to
write).

Imports `render` for the names of annotations, and `spec`.
"""
