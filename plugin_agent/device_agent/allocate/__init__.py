"""What a container gets: the best set of devices, and the content of an Allocate answer. Pure.

Exports: `preferred`, `topology` (how near two devices are), `answer`, `grant` (the note in an answer: which hardware
the ids are).
May import health, select and what is below them; it does no I/O and has no clock.
"""
