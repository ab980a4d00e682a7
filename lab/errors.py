"""The lab's errors; each message says what is wrong and what to do."""


class LabError(Exception):
    """The lab cannot go on."""


class CampaignError(LabError):
    """A campaign file is wrong: names the file, the field or line, and the reason."""


class PreparationError(LabError):
    """This host lacks something that the campaign needs."""


class RunError(LabError):
    """One run failed; finished runs are not touched."""


class RepeatedError(LabError):
    """A run failed in all its tries; the campaign may go on without it."""


class ToolError(RunError):
    """A program that the lab called (ip, tc) refused."""


class StopRequested(BaseException):
    """The user or the system asked the lab to stop; like KeyboardInterrupt it passes through `except Exception`."""
