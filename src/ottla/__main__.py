"""`python -m ottla` is the `ottla` command."""

from ottla.broker.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
