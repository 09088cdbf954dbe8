"""How do users of other tools come by this search? One module a tool, which alone imports it."""
