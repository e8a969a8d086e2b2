"""How a gang is divided over members."""
