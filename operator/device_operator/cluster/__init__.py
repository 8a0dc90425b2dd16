"""Everything that talks to the API server.

Exports: `connection` (address and credentials), `client` (requests and watches, raw JSON), `collection` (one list and
watch), `cache` (what is known of the cluster), `configs` (the DevicePluginConfigs), `acceptances` (their accepted
specs) and `revisions` (the form of these in the cluster), `staging` (what each pool gets), `apply` and `cleaning`
(writes manifests, deletes leftovers), `observing` (what a pass sees), `complaints` (Events about missing agent pods),
`lease` (leader election), `events` (writes core/v1 Events).

Imports `status`, `render`, `spec` and `runtime`; nothing of the shell above it.
"""
