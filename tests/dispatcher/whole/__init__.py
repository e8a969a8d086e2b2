"""Behaviour of the core as one: dispatch, races, random histories."""
