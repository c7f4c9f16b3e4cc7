"""One file per API: which versions are served and how."""
