"""What goes wrong, in words that name the option and the way out. Each pickles: Spark carries
errors from process to process."""

from __future__ import annotations


class SourceError(Exception):
    """Base of all errors of this data source."""


class BadOption(SourceError, ValueError):
    """An option that is wrong, missing, or not one of this source's; the text names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option = option

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


INSTALL = "pip install 'ottla[spark]', or in a checkout of Ottla: pip install '.[spark]'"


class MissingPackage(SourceError, ImportError):
    """confluent-kafka or pyarrow is not installed where this process runs."""


class BrokerError(SourceError):
    """The brokers refuse, or do not answer in the time that an option gives them."""


class UnknownTopic(BrokerError):
    """A topic that was asked for is not there."""


class DataLoss(SourceError):
    """Records that were to be read are not there any more (or never were); failOnDataLoss decides
    whether this is an error."""


class WriteFailed(SourceError):
    """Records were not acknowledged."""
