"""Timer messages: the files in which they wait, as TimerMessageStore of stock writes them, and what decides on them.

`TimerLog` is append only: one unit for each waiting message, with the position of the previous unit of its slot.
`TimerWheel` is an array of slots: the time of a slot, its first and its last unit, and their number.
`TimerCore` decides what waits, rolls and goes out. It has no IO.
"""
