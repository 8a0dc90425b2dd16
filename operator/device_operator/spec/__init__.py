"""The typed DevicePluginConfig: what an admin wrote, parsed, checked and judged. Pure.

Exports: `model` (Pool, Spec), `parsing` (JSON to Spec, or every problem), `written` (the same for a file, with what the
API server would refuse), `placement` (nodes of each pool),
`acceptance` (may this generation be in force), and by subject `agent_settings`, `scheduling`, `driver_access`,
`caveats`, `catalogue`, `wording` (texts for people).

Imports `device_agent.contract` and the exceptions of `runtime.errors`, nothing else of the operator.
"""
