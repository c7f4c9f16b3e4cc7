"""What new brokers get wrong: one test a fact, on a raw socket, the same bytes to both targets."""
