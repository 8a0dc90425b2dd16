"""The commands, one module each: flags, what it reads, and what it prints. What is decided stands in `model`.

Exports `registry.COMMANDS`, in the order of the help; each module has its `COMMAND`. Imports everything else of the
plugin.
"""
