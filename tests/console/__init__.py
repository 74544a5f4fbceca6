"""A package, so that fixtures of scope `package` end with this folder: playwright keeps an event loop running."""
