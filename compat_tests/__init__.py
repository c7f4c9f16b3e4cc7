"""The proof that Ottla is a Kafka broker: the same tests against Ottla and against Apache Kafka.

Nothing in here imports Ottla: it is started as a process and spoken to as any client does.
"""
