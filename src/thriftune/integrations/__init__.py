"""How do users of other tools come by this search? One place a tool, which alone imports it."""
