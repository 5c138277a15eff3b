"""Workers beside control that act on stored messages, and what they share."""
