"""Nothing is wrong: steps of light, steady clocks, one kind of link.

Nothing may be declined here.
"""

from tests.campaigns.hard_labs.timing import Timing

LAB = Timing()
