"""Work to member and status back: the pure parts."""
