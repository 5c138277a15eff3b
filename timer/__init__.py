"""Timer messages: the files of stock RocketMQ that hold what waits for its time, as TimerMessageStore writes them.

`TimerLog` is append only: one unit for each waiting message, with the position of the previous unit of its slot.
`TimerWheel` is an array of slots: the time of a slot, its first and its last unit, and their number.
"""
