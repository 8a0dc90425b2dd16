"""What the running process needs: supervised tasks, worker threads, watches, settings, metrics, probes, logs, the base
of errors.

Exports: `supervision`, `worker`, `directory_watch`, `settings`, `metrics`, `exposition`, `probes`, `logs`, `errors`.
May import only the standard library. It knows nothing of devices.
"""
