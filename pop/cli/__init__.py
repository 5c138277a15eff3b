"""Commands of POP, as an operator sees it."""
