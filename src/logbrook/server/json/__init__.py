"""RustLog's protocol on a listener of its own: JSON objects in length-prefixed frames, for clients without Kafka's.

    connection  a `ServerConnection` that explains why it closes and tolerates half-closed clients
    dispatch    frame -> request -> handler -> response frame
    access      authentication, and the rights that requests need
    fetch       the Fetch request: records decompressed and written as JSON, in bounded steps
    handlers    all other requests
    errors      the error names of the protocol for the errors of the subsystems

`protocol.json_frames` and `protocol.json_requests` have the wire format; docs/JSON_PROTOCOL.md describes it. Handlers
work with the same `Services` as those of Kafka's protocol. The package may import everything that `server` may. Only
`broker` imports it, and only if `network.json_listen` is set.
"""
