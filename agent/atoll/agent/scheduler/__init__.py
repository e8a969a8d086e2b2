"""The gang scheduler of a member: `core` decides and is pure, as `status` is; the rest does the input and output."""
