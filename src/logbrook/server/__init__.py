"""The asyncio shell around the engine and the state machines."""
