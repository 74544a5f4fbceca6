"""The log engine. It knows batches and files; it knows no socket, no wire protocol, no clock and no thread but one."""
