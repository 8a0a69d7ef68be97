#!/usr/bin/env python3
"""Writes a container image with sumlink, as a tar archive in the OCI image layout.

    scripts/oci.py --program FILE --licenses FOLDER --arch ARCH --version VERSION --time SECONDS OUT

The image contains the static program, the certificate authorities of this machine (for DNS over TLS
and over HTTPS), licenses, and the folders of configuration, state and sockets. It needs no base image
and no container program. The same input gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import tarfile
import time

AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
FOLDERS = ("etc", "etc/ssl", "etc/ssl/certs", "etc/sumlink", "run", "run/sumlink", "usr", "usr/bin", "usr/share",
           "usr/share/licenses", "usr/share/licenses/sumlink", "var", "var/lib", "var/lib/sumlink")
USERS = "root:x:0:0:root:/etc/sumlink:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
GROUPS = "root:x:0:\nnobody:x:65534:\n"


def entry(name, moment, mode, size=0, kind=tarfile.REGTYPE):
    """The header of a file or folder that belongs to root."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.mtime = kind, mode, size, moment
    return info


def add(archive, name, data, moment, mode=0o644):
    archive.addfile(entry(name, moment, mode, len(data)), io.BytesIO(data))


def layer(program, licenses, moment):
    """The files of the image as an uncompressed tar archive."""
    files = {
        "etc/group": (GROUPS.encode(), 0o644),
        "etc/passwd": (USERS.encode(), 0o644),
        "etc/ssl/certs/ca-certificates.crt": (AUTHORITIES.read_bytes(), 0o644),
        "usr/bin/sumlink": (program.read_bytes(), 0o755),
    }
    for file in licenses.iterdir():
        files[f"usr/share/licenses/sumlink/{file.name}"] = (file.read_bytes(), 0o644)
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in FOLDERS:
            archive.addfile(entry(folder, moment, 0o755, kind=tarfile.DIRTYPE))
        # Unpacking programs expect this mode.
        archive.addfile(entry("tmp", moment, 0o1777, kind=tarfile.DIRTYPE))
        for name, (data, mode) in sorted(files.items()):
            add(archive, name, data, moment, mode)
    return output.getvalue()


def encode(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Blobs:
    """The blobs of an image layout, by digest."""

    def __init__(self):
        self.data = {}

    def put(self, kind, data):
        """Adds a blob; returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.data[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}


def image(args):
    """The files of the image layout, by name."""
    architecture, _, variant = args.arch.partition("/")
    platform = {"os": "linux", "architecture": architecture} | ({"variant": variant} if variant else {})
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(args.time))
    labels = {
        "org.opencontainers.image.title": "sumlink",
        "org.opencontainers.image.description": "one connection over every link of a machine",
        "org.opencontainers.image.version": args.version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
        "org.opencontainers.image.created": created,
    }
    blobs = Blobs()
    files = layer(args.program, args.licenses, args.time)
    config = platform | {
        "created": created,
        "config": {
            "Entrypoint": ["/usr/bin/sumlink"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin", "STATE_DIRECTORY=/var/lib/sumlink"],
            "WorkingDir": "/etc/sumlink",
            "ExposedPorts": {"7443/tcp": {}, "7443/udp": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": created, "created_by": "scripts/oci.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blobs.put("config.v1+json", encode(config)),
        "layers": [blobs.put("layer.v1.tar+gzip", gzip.compress(files, 9, mtime=0))],
        "annotations": labels,
    }
    described = blobs.put("manifest.v1+json", encode(manifest)) | {
        "platform": platform,
        # The name in `docker load` and `podman load`.
        "annotations": {
            "io.containerd.image.name": f"localhost/sumlink:{args.version}",
            "org.opencontainers.image.ref.name": args.version,
        },
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described]}
    return {"oci-layout": encode({"imageLayoutVersion": "1.0.0"}), "index.json": encode(index)} | {
        f"blobs/sha256/{digest}": data for digest, data in sorted(blobs.data.items())
    }


def main():
    parser = argparse.ArgumentParser(prog="oci.py", description="Writes a container image with sumlink.")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="the static program")
    parser.add_argument("--licenses", type=pathlib.Path, required=True, help="folder with license texts")
    parser.add_argument("--arch", required=True, help="architecture in Go's words: amd64, arm64, arm/v7")
    parser.add_argument("--version", required=True, help="version of the program, and tag of the image")
    parser.add_argument("--time", type=int, required=True, help="time of all files, in seconds since 1970")
    parser.add_argument("out", type=pathlib.Path, help="the archive to write")
    args = parser.parse_args()
    if not AUTHORITIES.exists():
        parser.exit(1, f"oci.py: {AUTHORITIES} is missing: apt-get install ca-certificates\n")
    with tarfile.open(args.out, "w", format=tarfile.GNU_FORMAT) as archive:
        for folder in ("blobs", "blobs/sha256"):
            archive.addfile(entry(folder, args.time, 0o755, kind=tarfile.DIRTYPE))
        for name, data in image(args).items():
            add(archive, name, data, args.time)


if __name__ == "__main__":
    main()
