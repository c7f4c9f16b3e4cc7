"""Transactions: step by step against Apache Kafka's answers, with stock clients, under kill -9."""
