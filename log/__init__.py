"""The durable log: segmented LMDB, one commit, one truth."""
