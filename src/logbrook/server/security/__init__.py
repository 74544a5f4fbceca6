"""Security of the broker: who a client is, what it may do and how much, and the record of both.

    tls               TLS contexts of the listeners, reloaded when their files change
    tls_acceptor      accepts connections with TLS, with bounded handshakes
    certificates      the principal of a client's certificate
    sasl              the exchange of one SASL authentication
    authentication    verifies passwords and tokens; limits failures
    password_hashing  hashes passwords in a thread, for the clients in turn
    oauth             verifies JSON web tokens
    token_keys        the keys that they are signed with
    users_file        users who exist before any is created over the protocol
    state             users, ACLs and quotas, from the metadata store
    authorizer        decides what a client may do, by the ACLs
    api_rights        the table of the rights that each API needs
    acl_messages      ACLs in the messages of the protocol
    quotas            enforces quotas: counts what clients use, and throttles them
    request_usage     what one request uses of its client's quotas
    audit             the audit log; `audited_apis` what a request changed, `audit_limits` how many events clients can
                      cause, `audit_file` and `audit_topic` where they go

A connection's state is its `server.session.ConnectionSession`. The package may import `core`, `config`, `protocol` and
below.
"""
