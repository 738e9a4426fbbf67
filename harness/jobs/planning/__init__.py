"""Planning that several systems share: rings and routes."""
