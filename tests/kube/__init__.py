"""What talks to an API server, against tiny real servers on the loopback interface."""
