"""The broker: sockets, dispatch and handlers around the log and the groups."""
