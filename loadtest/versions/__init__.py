"""The comparison of this checkout with another by the rule of speed."""
