"""The container image, run without a container program: its files, and the rights that docs/install.md grants."""

import json
import os
import pathlib
import stat
import tarfile

from contents import check, one
from root import Root

# Of the capabilities that Docker and Podman grant, those that matter here; and NET_ADMIN.
RIGHTS = "-all,+chown,+dac_override,+setgid,+setuid,+kill,+net_bind_service,+sys_chroot,+net_admin"
SOCKET = "/run/sumlink/gateway.sock"


def unpack(image, place):
    """Unpacks the layer, with the folders and devices that every container has."""
    with tarfile.open(image) as packed:
        def blob(descriptor):
            return packed.extractfile("blobs/" + descriptor["digest"].replace(":", "/"))

        manifest = json.load(blob(json.load(packed.extractfile("index.json"))["manifests"][0]))
        config = json.load(blob(manifest["config"]))["config"]
        with tarfile.open(fileobj=blob(manifest["layers"][0]), mode="r:gz") as layer:
            layer.extractall(place)
    for name in ("proc", "dev"):
        (place / name).mkdir()
    for name, minor in (("null", 3), ("urandom", 9)):
        os.mknod(place / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    return config


def container(folder, place):
    """The entry point makes keys, and runs as a gateway: with TUN, as the image has no nftables."""
    files = pathlib.Path(place) / "rootfs"
    files.mkdir()
    config = unpack(one(folder, "*.oci.tar"), files)
    with Root(files) as root:
        command = ("setpriv", f"--bounding-set={RIGHTS}", "--inh-caps=-all", "env", "-i", *config["Env"],
                   "/usr/sbin/chroot", root.mounted, *config["Entrypoint"])
        # The test's own /run hides that of the image.
        (root.path / "run/sumlink").mkdir()
        done = root.run(*command, "keygen", "--out", "/etc/sumlink/client.key", inside=False)
        public = done.stdout.split()[-1]
        (root.path / "etc/sumlink/client.toml").write_text(
            f'server = "192.0.2.1:7443"\nserver_key = "{public}"\nkey = "client.key"\n[gateway]\n')
        up = " ".join(map(str, (*command, "up", "--config", "/etc/sumlink/client.toml", "> /dev/null 2>&1 &")))
        root.run("sh", "-c", up, inside=False)
        root.wait(*command, "status", "--control", SOCKET, inside=False)
        devices = root.run("ip", "-brief", "link", inside=False).stdout
        check("sumlink0" in devices, f"devices of the gateway: {devices}")
        root.run(*command, "down", inside=False)
        devices = root.run("ip", "-brief", "link", inside=False).stdout
        check("sumlink0" not in devices, f"devices after `sumlink down`: {devices}")
