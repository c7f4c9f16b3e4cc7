"""A Kafka client with nothing between the test and the bytes.

`schema` turns dicts into requests and answers into objects, `wire` sends and receives frames,
`batch` builds and reads record batches: any of them wrong on purpose where a test asks for it.
"""
