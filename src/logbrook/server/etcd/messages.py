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


def _message(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"etcdserverpb.{name}"))


AuthenticateRequest = _message("AuthenticateRequest")
AuthenticateResponse = _message("AuthenticateResponse")
Compare = _message("Compare")
DeleteRangeRequest = _message("DeleteRangeRequest")
LeaseGrantRequest = _message("LeaseGrantRequest")
LeaseGrantResponse = _message("LeaseGrantResponse")
LeaseKeepAliveRequest = _message("LeaseKeepAliveRequest")
LeaseKeepAliveResponse = _message("LeaseKeepAliveResponse")
LeaseRevokeRequest = _message("LeaseRevokeRequest")
LeaseRevokeResponse = _message("LeaseRevokeResponse")
PutRequest = _message("PutRequest")
RangeRequest = _message("RangeRequest")
RangeResponse = _message("RangeResponse")
RequestOp = _message("RequestOp")
TxnRequest = _message("TxnRequest")
TxnResponse = _message("TxnResponse")
WatchCreateRequest = _message("WatchCreateRequest")
WatchProgressRequest = _message("WatchProgressRequest")
WatchRequest = _message("WatchRequest")
WatchResponse = _message("WatchResponse")
