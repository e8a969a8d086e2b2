"""What members have: nodes, what of each shape fits where, and which members are not to be tried for a while."""
