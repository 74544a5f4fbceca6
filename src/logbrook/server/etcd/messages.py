"""The messages of etcd's API that the metadata store uses.

The descriptors are generated from etcd's .proto files (`tools/etcd_descriptors.py`), the classes at import.
"""

from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# A pool of its own: another library of the process may have registered the same files.
_pool = DescriptorPool()
for _file in FileDescriptorSet.FromString((files(__package__) / "descriptors.binpb").read_bytes()).file:
    _pool.Add(_file)


def message(name: str) -> Any:
    """Return the class of a message of etcd's API."""
    return GetMessageClass(_pool.FindMessageTypeByName(f"etcdserverpb.{name}"))


AuthenticateRequest = message("AuthenticateRequest")
AuthenticateResponse = message("AuthenticateResponse")
Compare = message("Compare")
DeleteRangeRequest = message("DeleteRangeRequest")
LeaseGrantRequest = message("LeaseGrantRequest")
LeaseGrantResponse = message("LeaseGrantResponse")
LeaseKeepAliveRequest = message("LeaseKeepAliveRequest")
LeaseKeepAliveResponse = message("LeaseKeepAliveResponse")
LeaseRevokeRequest = message("LeaseRevokeRequest")
LeaseRevokeResponse = message("LeaseRevokeResponse")
PutRequest = message("PutRequest")
RangeRequest = message("RangeRequest")
RangeResponse = message("RangeResponse")
RequestOp = message("RequestOp")
TxnRequest = message("TxnRequest")
TxnResponse = message("TxnResponse")
WatchCreateRequest = message("WatchCreateRequest")
WatchProgressRequest = message("WatchProgressRequest")
WatchRequest = message("WatchRequest")
WatchResponse = message("WatchResponse")
