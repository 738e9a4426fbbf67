"""What the tools of a Linux server print, read into plain values.

One module a tool, each with a function `parse(text)`: pure, no wire, no clock. Where a tool
speaks JSON and text, `parse` tells them apart itself, since an older tool answers in text when
it is asked for JSON. Output that cannot be read with certainty raises `ToolOutputError`: where
a tool prints one thing twice (mW and dBm, °C and °F, a rate and what it follows from, a sum and
its parts) the two must agree to the printed digits.

Counts are integers, times integer nanoseconds, rates bit/s, light dBm. `-inf` dBm is no light;
None is a value that the tool did not give.
"""
