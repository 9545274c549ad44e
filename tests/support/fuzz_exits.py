"""A module that ends the process when it is imported, as the module of an env may."""

raise SystemExit(0)
