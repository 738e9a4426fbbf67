"""What Keysight's N77xx lightwave instruments have in common: their errors.

Source: Keysight N77xx Series Programming Guide, edition 7, chapter 7.
"""

from instruments.scpi_instrument import Meanings

MEANINGS: Meanings = {
    -113: ("this instrument does not know the command", "is the model in the testbed file right?"),
    -200: (
        "its state does not allow this: a log is complete and its result still there",
        "take the result, or begin another log",
    ),
    -205: (
        "the power meter is not running, since a log has its samples to give",
        "take the log's result first",
    ),
    -211: ("a trigger came too early: the average before had not ended", "average for less time"),
    -213: (
        "it measures continuously, and then takes no trigger",
        "does another program, or its viewer, use it as well?",
    ),
    -220: ("a parameter is not one that this instrument has", "compare ports and values with it"),
    -221: ("this setting does not go with another one", "does another program use it as well?"),
    -222: ("the value is outside the instrument's range", "ask it for MIN and MAX"),
    -224: ("the value is none of those that it takes", "is the model in the testbed file right?"),
    -231: (
        "the reading cannot be trusted: the average had not ended, or the range does not fit",
        "prepare() sets the range to automatic; does another program change settings?",
    ),
    -261: ("less than no power has no value in dBm", "read in watt"),
    -284: ("a log is running", "wait for its result"),
    -286: ("there is no log, or a changed setting has ended it", "begin the log again"),
    -301: ("the addressed module does not do this", "is the model in the testbed file right?"),
    -303: ("there is nothing in that slot", "compare `channels:` in the testbed file with it"),
    -350: ("it had more to object to than it could keep", "see the last lines on the wire"),
    -616: ("it is taking its dark offset", "wait some seconds"),
}
"""What the error codes mean at the bench, and what to try."""
