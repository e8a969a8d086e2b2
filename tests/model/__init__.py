"""Values: quantities, vectors, selectors, topology, gangs, times."""
