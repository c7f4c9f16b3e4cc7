"""Both brokers asked the same, one field of a valid request changed at a time, answers compared.

`bases` has a valid request for each API, `changes` what becomes of it, `answers` what is compared
of an answer, `known` the differences that are known, with their reasons.
"""
