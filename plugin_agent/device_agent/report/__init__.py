"""What the agent tells the cluster: the node's inventory, kept in step with the device table.

Exports: `inventory` (the object's content), `reporter` (when it is sent), `api_client` (how).
May import every room below it; nobody but the process itself imports it.
"""
