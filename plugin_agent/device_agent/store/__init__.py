"""Data that outlives the process: one directory on the node, in sections, with one file for each object.

Exports: `section` (what is kept, and its bytes), `node_store` (the files), `keeper` (their only user), `sweeper`,
`configuration` (the document in force); `locks`, `seats`, `seating` (locks between the agents of the node). May import
contract and runtime.

To add a section: write a frozen dataclass for its items and a `Section` line, both in the package that owns them. Write
a `keeper.Memory` that hands the items over and takes them back. Add a `Keeper` and a line for the sweeper in agent.py.
"""
