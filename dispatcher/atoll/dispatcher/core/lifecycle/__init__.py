"""Where every binding is, and how it gets from phase to phase."""
