"""Consumption by POP: pops of all masters, receipts, acknowledgements. `pop_member` has the parts together."""
