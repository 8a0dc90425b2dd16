"""What any long-running program needs: supervised tasks, worker threads, watches, settings, metrics, logs.

Exports: `supervision`, `worker`, `directory_watch`, `settings`, `metrics`, `errors`.
May import the standard library and third-party libraries alone; it knows nothing of devices.
"""
