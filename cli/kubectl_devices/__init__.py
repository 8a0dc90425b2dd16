"""`kubectl devices`, a kubectl plugin: what hardware the cluster has, who holds it, what is wrong, and its maintenance.

It runs on an admin's machine with the admin's own rights. It imports the operator's `spec`, and `select`, `discovery`
and `contract` of the agent, and nothing else of the two programs.
"""

__version__ = "0.1.0"
