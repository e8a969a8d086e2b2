"""How objects become events and commands become writes."""
