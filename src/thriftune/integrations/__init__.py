"""How do users of other tools use thriftune's search? Each tool has one package, the only one that imports it."""
