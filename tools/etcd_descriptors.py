"""Generates the descriptors of etcd's messages from its .proto files: `python tools/etcd_descriptors.py DIRECTORY`.

DIRECTORY is etcd's Go module: `go mod download -json go.etcd.io/etcd/api/v3@v3.6.5` names it. Needs the package
grpcio-tools. Annotations for other languages and for the HTTP gateway are removed first, so that nothing but these
files is needed. The result works with every version of protobuf, unlike generated Python code.
"""

import re
import sys
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

_FILES = ("mvccpb/kv.proto", "authpb/auth.proto", "etcdserverpb/rpc.proto")
_OUTPUT = Path(__file__).parent.parent / "src" / "logbrook" / "server" / "etcd" / "descriptors.binpb"


def main(directory: str) -> None:
    with TemporaryDirectory() as temporary:
        for name in _FILES:
            target = Path(temporary, "etcd", "api", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_without_annotations(Path(directory, name).read_text()))
        output = str(Path(temporary, "set"))
        includes = [f"-I{temporary}", f"-I{resources.files('grpc_tools') / '_proto'}"]
        names = [f"etcd/api/{name}" for name in _FILES]
        if protoc.main(["protoc", *includes, "--include_imports", f"--descriptor_set_out={output}", *names]):
            raise SystemExit("protoc failed")
        descriptors = FileDescriptorSet.FromString(Path(output).read_bytes())
    _OUTPUT.write_bytes(descriptors.SerializeToString(deterministic=True))
    print(f"{_OUTPUT}: {_OUTPUT.stat().st_size:,} bytes")  # noqa: T201 - a command


def _without_annotations(text: str) -> str:
    text = re.sub(r"//.*", "", text)
    text = re.sub(r'import "(gogoproto|google/api|protoc-gen-openapiv2|etcd/api/versionpb)/[^"]*";', "", text)
    # Options with a block as value, then those of one line.
    text = re.sub(r"option \([^)]*\)\s*=\s*\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\};", "", text)
    text = re.sub(r"option \([^)]*\)[^;]*;", "", text)
    return re.sub(r"\s*\[[^\]]*\([^\]]*\)[^\]]*\]", "", text)


if __name__ == "__main__":
    main(*sys.argv[1:])
