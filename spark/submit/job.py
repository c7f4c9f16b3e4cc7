"""`ottla-spark` for spark-submit; the arguments are the same."""

import sys

from ottla.spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
