"""Network namespaces: holder processes and the program that they run."""
