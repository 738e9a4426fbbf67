"""Programs, tools and libraries that jobs run on servers."""
