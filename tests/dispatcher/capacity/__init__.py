"""What members offer, refuse and fail at."""
