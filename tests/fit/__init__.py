"""Placing gangs on nodes."""
