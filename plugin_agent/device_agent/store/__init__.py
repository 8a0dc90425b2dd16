"""What outlives the process: one directory on the node.

Exports: `configuration` (the document in force), `node_state`, `claim_files`, `sweeper`.
May import contract and runtime; whoever keeps something hands it over as a value.
"""
