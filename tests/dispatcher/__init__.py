"""The dispatcher's decisions and the objects around them."""
