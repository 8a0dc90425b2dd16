"""What operator and agent agree on: the configuration document, both status objects, and the words and names both use.

Exports: `document` (the configuration as frozen dataclasses), `check` (its mistakes, each with the cure), `attributes`,
`globs`, `template`, `names`, `inventory` and `status` (the two status objects), `reasons`, `codec` (JSON and back),
`times`, `values` (quick frozen dataclasses), `log_format`.
May import the standard library alone; the operator imports this package and nothing else of the agent.
"""
