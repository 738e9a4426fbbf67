collect_ignore = ["carousel"]  # its suite runs where the package is installed
