"""The typed DevicePluginConfig: what an admin wrote, parsed, checked and judged. Pure.

Exports: `model` (Pool, Spec), `parsing` (JSON to Spec, or every problem), `placement` (nodes of each pool),
`acceptance` (may this generation be in force), `wording` (parts of messages), and by subject `agent_settings`,
`scheduling`, `driver_access`, `caveats`, `catalogue`.

Imports `device_agent.contract` and the exceptions of `runtime.errors`, nothing else of the operator.
"""
