"""One module a quantity; they know what instruments can do, never a driver."""
