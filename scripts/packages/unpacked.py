"""apk and ipk packages without their managers: unpacked, with their scripts run in the same order."""

import shutil
import tarfile

from common import Format
from services import OpenRc, Procd


class Unpacked(Format):
    """Unpacks a package and runs its scripts, where the format's own manager is missing."""

    manager = False
    database = ("/var/lib/unpacked",)
    new_config = ".new"
    # The name of the script of each step.
    scripts = {}

    def unpack(self, package):
        """Version, scripts and files (each with its entry of the archive) of a package."""
        raise NotImplementedError

    def script(self, step, upgrade=False):
        """Runs the script of a step, if the package has it."""
        file = self.state / self.scripts.get(step, "none")
        if file.exists():
            inside = "/" + str(file.relative_to(self.root.path))
            self.root.run("sh", inside, env=(f"PKG_UPGRADE={int(upgrade)}",))

    @property
    def state(self):
        return self.root.path / "var/lib/unpacked"

    def installed(self):
        listed = self.state / "files"
        return listed.read_text().splitlines() if listed.exists() else []

    def install(self, package, **_):
        before = self.installed()
        upgrade = bool(before)
        new = self.unpack(package)
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)
        for name, text in new["scripts"].items():
            (self.state / name).write_bytes(text)
        self.script("before upgrade" if upgrade else "before", upgrade)
        listed = []
        for member, data in new["files"]:
            path = self.root.path / member.name.removeprefix("./")
            name = "/" + member.name.removeprefix("./").rstrip("/")
            # Folders that existed before belong to the system.
            if not path.is_dir() or name in before:
                listed.append(name)
            if member.isdir():
                path.mkdir(exist_ok=True)
                continue
            if name.startswith("/etc/sumlink/") and path.exists() and path.read_bytes() != data:
                path = path.with_name(path.name + self.new_config)
                listed.append(name + self.new_config)
            elif path.exists():
                path.unlink()
            path.write_bytes(data)
            path.chmod(member.mode)
            self.root.run("chown", f"0:{self.group(member)}", "/" + str(path.relative_to(self.root.path)))
        (self.state / "files").write_text("\n".join(listed) + "\n")
        (self.state / "version").write_text(new["version"])
        self.script("after upgrade" if upgrade else "after", upgrade)

    def group(self, member):
        return member.gname or member.gid

    def remove(self):
        if not self.installed():
            return
        self.script("before removal")
        for name in reversed(self.installed()):
            path = self.root.path / name.lstrip("/")
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif name not in ("/etc/sumlink/client.toml", "/etc/sumlink/server.toml"):
                path.unlink()
        shutil.rmtree(self.state)

    def version(self):
        return (self.state / "version").read_text()

    @staticmethod
    def members(archive):
        """The files of a tar archive, with their data."""
        return [(member, archive.extractfile(member).read() if member.isfile() else b"") for member in archive]


class ApkUnpacked(OpenRc, Unpacked):
    glob = "*.apk"
    how = "unpacked by the test; no program apk (APK=...)"
    scripts = {
        "before": ".pre-install", "before upgrade": ".pre-upgrade", "after upgrade": ".post-upgrade",
        "before removal": ".pre-deinstall",
    }

    def unpack(self, package):
        with tarfile.open(package, "r:gz", ignore_zeros=True) as archive:
            members = self.members(archive)
        info = next(data for member, data in members if member.name == ".PKGINFO").decode()
        fields = dict(line.split(" = ", 1) for line in info.splitlines() if " = " in line)
        return {
            "version": fields["pkgver"],
            "scripts": {member.name: data for member, data in members if member.name.startswith(".")},
            "files": [(member, data) for member, data in members if not member.name.startswith(".")],
        }


class IpkUnpacked(Procd, Unpacked):
    glob = "*.ipk"
    how = "unpacked by the test; no program opkg (OPKG=...)"
    scripts = {"after": "postinst", "after upgrade": "postinst", "before removal": "prerm"}

    # opkg ignores the names of owners.
    def group(self, member):
        return member.gid

    def unpack(self, package):
        with tarfile.open(package, "r:gz") as archive:
            parts = {member.name.removeprefix("./"): archive.extractfile(member) for member in archive}
            with tarfile.open(fileobj=parts["control.tar.gz"], mode="r:gz") as control:
                scripts = {member.name.removeprefix("./"): data for member, data in self.members(control)}
            with tarfile.open(fileobj=parts["data.tar.gz"], mode="r:gz") as data:
                files = [(member, text) for member, text in self.members(data) if member.name not in (".", "./")]
        fields = dict(line.split(": ", 1) for line in scripts["control"].decode().splitlines() if ": " in line)
        return {"version": fields["Version"], "scripts": scripts, "files": files}
