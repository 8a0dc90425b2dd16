"""The parts that any long-running process needs.

Exports: `settings`, `errors` (the exception tree), `workqueue` and `workers`, `logs`, `metrics`, `probes`.

Imports nothing else of the operator.
"""
