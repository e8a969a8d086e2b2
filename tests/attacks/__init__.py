"""What tenants try with nothing but their own rights, on real API servers; each was seen to work once."""
