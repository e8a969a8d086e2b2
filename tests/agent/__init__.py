"""The agent: Volcano Jobs, gangs, capacity."""
