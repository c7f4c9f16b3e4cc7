"""Starts the broker under test and keeps what the tests say about it."""
