"""What waits: who is looked at, when, and at what cost."""
