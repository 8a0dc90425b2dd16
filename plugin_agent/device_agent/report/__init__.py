"""What the agent tells others: readiness, metrics and the node's inventory, kept in step with the device table.

Exports: `publication` (all of it, a moment after each change), `inventory` (the object's content), `reporter` (when it
is sent), `api_client` (how), `acknowledgement` and `cordoning` (what admins have written), `transitions` (what
changed between two snapshots; lines of the log), `history` (the transitions of the last days).
May import every package below it; only the process itself imports it.
"""
