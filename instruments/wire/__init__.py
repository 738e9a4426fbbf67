"""Sessions: framing, timeouts, resynchronisation, and a trace of both directions."""
