"""Consumer groups: stock clients in processes of their own, and the same bytes to both brokers."""
