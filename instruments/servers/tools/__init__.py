"""Parsers for the output of a Linux server's tools.

One module per tool, each with a pure function `parse(text)`. `parse` accepts JSON and text where a
tool has both: an older version prints text although JSON is requested, and some refuse JSON or omit
values in it. Output that cannot be parsed with certainty raises `ToolOutputError`: where a tool
prints one value twice (mW and dBm, °C and °F, a rate and its factors, a sum and its parts), the two
must agree to the printed digits.

Counts are integers, times integer nanoseconds, rates bit/s, light dBm. `-inf` dBm is no light;
None is a value that the tool did not print.
"""
