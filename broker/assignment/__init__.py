"""The queues that the broker assigns to consumers: request modes of groups, routes of topics, shares of members."""
