"""What outlives the process: one directory on the node, in sections, with a file for each object.

Exports: `section` (what is kept, and its bytes), `node_store` (the files), `keeper` (their only user), `sweeper`,
`configuration` (the document in force). May import contract and runtime.

To add a section: a frozen dataclass for its items and a `Section` line, both in the room that they belong to; a
`keeper.Memory` that hands them over and takes them back; a `Keeper` in agent.py. The sweeper needs its line there too.
"""
