"""Does Atoll stay as it is? A federation under a steady stream of jobs, and what its processes weigh meanwhile."""
