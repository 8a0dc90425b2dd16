"""Everything that talks to the API server.

- `connection`: where the API server is, and credentials
- `client`: requests and watches, raw JSON
- `collection`: one list+watch, relisted with a difference
- `cache`: what the operator knows of nodes, DaemonSets, ConfigMaps, agent pods and inventories
- `apply`: writes rendered objects, finds drift
- `lease`: leader election
- `events`: core/v1 Events, each once
"""
