"""From what was read to what is shown. Pure: values in, values out, no request and no output.

Exports by command: `fleet` (devices of all nodes), `filters`, `holders` (who), `cordons`, `eviction` (drain), `table`
(rows to aligned lines).
Imports `errors` and the contract.
"""
