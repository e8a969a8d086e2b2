"""The host's controllers: the pure parts."""
