"""When a device is healthy, why it is not, and what ends a failure. Pure.

Exports: `news` (what drivers tell), `conditions` (of all devices), `assessment` (what is told of one),
`acknowledgement`, `watchlist` (its `Record` is what is kept).
May import select and what is below it; it does no I/O, has no clock and knows no vendor.
"""
