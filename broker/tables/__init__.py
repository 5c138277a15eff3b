"""What control knows and who tells the plane: topics, groups, clients, offsets, locks, what waits.

`ports` is what the tables need from outside, `publication` writes them into shared memory, `loading` and
`persistence` are their way from and to the config files.
"""
