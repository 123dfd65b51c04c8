#!/usr/bin/env python3
"""Writes a container image with the command, as an archive in the OCI image layout.

    dist/image.py --program FILE --certificates FILE --version V --revision COMMIT --out FILE.tar

No daemon is needed. All times are SOURCE_DATE_EPOCH, so that the same files give the same image.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import tarfile

# The user of the image, as of other images without a distribution: nobody on most hosts.
USER = 65532
HOME = "/home/leasehold"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ["program", "certificates", "version", "revision", "out"]:
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    tree = layer(args, epoch)
    layer_blob = gzip.compress(tree, 9, mtime=0)
    config = json_bytes(image_config(args, epoch, tree))
    manifest = json_bytes({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer_blob)],
    })
    listed = descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    listed["annotations"] = {
        "org.opencontainers.image.ref.name": args.version,
        "io.containerd.image.name": f"leasehold:{args.version}",
    }
    index = json_bytes({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [listed],
    })
    files = [("oci-layout", json_bytes({"imageLayoutVersion": "1.0.0"})), ("index.json", index)]
    files += [(f"blobs/sha256/{digest(blob)}", blob) for blob in [config, layer_blob, manifest]]
    with open(args.out, "wb") as out:
        out.write(archive(
            [directory("blobs", epoch), directory("blobs/sha256", epoch)],
            [(entry(name, epoch, len(data)), data) for name, data in files],
        ))


def layer(args, epoch):
    """What is in the image."""
    with open(args.program, "rb") as file:
        program = file.read()
    with open(args.certificates, "rb") as file:
        certificates = file.read()
    users = f"root:x:0:0:root:/:/sbin/nologin\nleasehold:x:{USER}:{USER}::{HOME}:/sbin/nologin\n"
    groups = f"root:x:0:\nleasehold:x:{USER}:\n"
    directories = [directory(name, epoch) for name in
                   ["etc", "etc/ssl", "etc/ssl/certs", "home", "usr", "usr/bin"]]
    directories.append(directory(HOME[1:], epoch, mode=0o700, user=USER))
    directories.append(directory("tmp", epoch, mode=0o1777))
    return archive(directories, [
        (entry("etc/passwd", epoch, len(users)), users.encode()),
        (entry("etc/group", epoch, len(groups)), groups.encode()),
        (entry("etc/ssl/certs/ca-certificates.crt", epoch, len(certificates)), certificates),
        (entry("usr/bin/leasehold", epoch, len(program), mode=0o755), program),
    ])


def image_config(args, epoch, tree):
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    return {
        "created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin", f"HOME={HOME}"],
            "Entrypoint": ["/usr/bin/leasehold"],
            "Cmd": ["--help"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "leasehold",
                "org.opencontainers.image.version": args.version,
                "org.opencontainers.image.revision": args.revision,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(tree)}"]},
        "history": [{"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "created_by": "scripts/dist"}],
    }


def archive(directories, files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for one in directories:
            tar.addfile(one)
        for one, data in files:
            tar.addfile(one, io.BytesIO(data))
    return out.getvalue()


def entry(name, epoch, size, mode=0o644):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, mode, epoch
    return info


def directory(name, epoch, mode=0o755, user=0):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime, info.uid, info.gid = tarfile.DIRTYPE, mode, epoch, user, user
    return info


def descriptor(kind, blob):
    return {"mediaType": kind, "digest": f"sha256:{digest(blob)}", "size": len(blob)}


def digest(blob):
    return hashlib.sha256(blob).hexdigest()


def json_bytes(value):
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


main()
