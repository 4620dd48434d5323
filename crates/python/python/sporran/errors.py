"""The exceptions of the package."""


class SporranError(Exception):
    """The base of all exceptions of the package."""


class InputError(SporranError, ValueError):
    """An argument, an option, a file or a model is wrong. The message names it."""


class BusyError(InputError):
    """Another process works in the folder of a run or a shard. The message names the folder and the process."""


class ConfigError(InputError):
    """A config is wrong. The message has every mistake with its file and line."""


class WorkError(SporranError):
    """The work failed, though the input was right: for example, the disk is full."""


class ForkError(WorkError, RuntimeError):
    """This process was forked after the library had started its threads. The message names the methods that work."""
