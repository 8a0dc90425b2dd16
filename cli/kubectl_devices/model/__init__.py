"""From what was read to what is shown. Pure: values in, values out, no request and no output.

Exports: `fleet` (devices of all nodes), `filters`, `table` (rows to aligned lines); for a command `holders` (who),
`telemetry` (top), `cordons`, `eviction` (drain), `soundness` (check), `acknowledging`, `specs` and `explanation`
(explain), `survey` (hardware), `scan_pod` (both), `support` and `redaction` (bundle), `completion`.
Imports `errors`, the agent's contract and the operator's spec.
"""
