"""Error codes of Keysight's N77xx lightwave instruments.

Source: Keysight N77xx Series Programming Guide, edition 7, chapter 7.
"""

from lightrig.instruments.core.scpi_instrument import ErrorMeanings

MEANINGS: ErrorMeanings = {
    -113: ("this instrument does not know the command", "is the model in the testbed file right?"),
    -200: (
        "its state does not allow this: a log is complete and was not read",
        "read the result, or begin another log",
    ),
    -205: (
        "the power meter is not running, since a complete log was not read",
        "read the log's result first",
    ),
    -211: ("a trigger came too early: the average before had not ended", "average for less time"),
    -213: (
        "it measures continuously, and then takes no trigger",
        "does another program, or its viewer, use it as well?",
    ),
    -220: ("this instrument does not have such a parameter", "compare ports and values with it"),
    -221: ("this setting does not go with another one", "does another program use it as well?"),
    -222: ("the value is outside the instrument's range", "query its MIN and MAX"),
    -224: ("it does not accept this value", "is the model in the testbed file right?"),
    -231: (
        "the reading cannot be trusted: the average had not ended, or the range does not fit",
        "prepare() sets the range to automatic; does another program change settings?",
    ),
    -261: ("a negative power has no value in dBm", "read in watt"),
    -284: ("a log is running", "wait for its result"),
    -286: ("there is no log, or a changed setting has ended it", "begin the log again"),
    -301: ("the addressed module does not do this", "is the model in the testbed file right?"),
    -303: ("there is nothing in that slot", "compare `channels:` in the testbed file with it"),
    -350: ("its error queue has overflowed", "see the last lines on the wire"),
    -616: ("it is taking its dark offset", "wait some seconds"),
}
"""Meaning of the error codes at the bench and what to try."""
