"""Whether the installation is sound, and what is wrong with it: each finding has a reason, a place, a text and a cure.

Exports: `finding` (Finding, Severity), `observed` (what was read), `verdict` (all findings of it); by subject
`of_operator`, `of_configs`, `of_agents`, `of_nodes`. Pure.
"""
