"""Consumer groups as a machine: a request and a time go in, rows and replies come out."""
