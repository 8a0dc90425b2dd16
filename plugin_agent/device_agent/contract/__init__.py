"""What operator and agent share: the configuration document, both status objects, and the reasons and names in them.

Exports: `document` (the configuration as frozen dataclasses), `check` (its mistakes, each with a cure), `attributes`,
`globs`, `template`, `names`, `inventory` and `status` (the two status objects), `reasons` (of devices),
`node_reasons`, `config_reasons`, `codec` (JSON and back), `times`, `values` (frozen dataclasses that are made faster),
`log_format`.
May import only the standard library. The operator imports this package and nothing else of the agent.
"""
