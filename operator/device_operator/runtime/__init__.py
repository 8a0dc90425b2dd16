"""What a long-running process needs, whatever its work is.

Exports: `settings`, `errors` (the exception tree), `workqueue` and `workers`, `logs`, `metrics`, `probes`.

Imports nothing else of the operator.
"""
