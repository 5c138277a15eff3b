"""Control's tables: topics, groups, clients, offsets, locks, held requests.

`protocols` has the protocols of plane and store, `publication` writes the tables into shared memory, `loading` and
`persistence` read and write the config files.
"""
