"""When a device is healthy, why it is not, and what ends a failure. Pure.

Exports: `news` (what drivers report), `conditions` (of all devices), `assessment` (how one unit is, by its conditions),
`acknowledgement`, `watchlist` (its `Record` is kept on the node), `memory` (the section of the node store).
May import select and what is below it. It does no I/O, has no clock and knows no vendor.
"""
