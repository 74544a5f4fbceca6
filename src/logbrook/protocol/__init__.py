"""The wire protocols, without I/O: framing, Kafka's messages and their codecs, and the JSON protocol's frames.

    framing         splits a byte stream into frames (FrameReader); builds request and response frames
    schema          how a message is described: Field, Versions, Message, ApiMessage
    messages/       one module per API, generated from kio's definitions (`make messages`)
    decoding        bytes to messages; `reader` has the primitive types
    encoding        messages to buffers; record batches are not copied
    response_errors error codes in a response, for metrics
    error_codes     Kafka's error codes, generated
    errors          ProtocolError and its subclasses
    json_frames, json_requests   the JSON protocol (docs/JSON_PROTOCOL.md)

A request: bytes -> FrameReader -> `decode` -> message class -> handler. A response: message class -> `encode` ->
`frame_response` -> buffers for the socket. It may import `records`, `ports`, `config` and `model`.
"""
