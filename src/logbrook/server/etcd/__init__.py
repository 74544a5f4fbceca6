"""etcd as the metadata store of a cluster (`ports.metadata_store`), over gRPC.

    store        `EtcdMetadataStore`: entries, transactions, watches and leases of one cluster, below a prefix of keys
    endpoints    `EtcdEndpoints`: connections to the members of an etcd cluster, with failover and authentication
    grpc_client  `GrpcConnection`: calls of gRPC over HTTP/2, without the threads and the memory of grpcio
    messages     the messages of etcd's API, from the descriptors of its own .proto files

It needs the extra `logbrook[cluster]`, and is imported only by brokers that are started with `--cluster`. May import
`ports`, `config` and `model`.
"""
