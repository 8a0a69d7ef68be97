"""Checks of the packed files, which need no installation."""

import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

CONFIGURATION = {"/etc/sumlink/client.toml", "/etc/sumlink/server.toml"}


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def run(*command):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout


def one(folder, pattern):
    found = list(folder.glob(pattern))
    check(len(found) == 1, f"{pattern}: {found}")
    return found[0]


def listing(archive):
    """Mode, owner and group of each file, by its absolute name."""
    return {"/" + member.name.removeprefix("./").rstrip("/"): (member.mode, member.uname, member.gname)
            for member in archive if member.name not in (".", "./")}


def data_of(archive):
    """The data of each file of a tar archive, by its name without `./`."""
    return {member.name.removeprefix("./"): archive.extractfile(member).read() for member in archive if member.isfile()}


def common(files):
    """The files of each package: the program, and examples that only the services may read."""
    check(files["/usr/bin/sumlink"] == (0o755, "root", "root"), f"program: {files['/usr/bin/sumlink']}")
    for name in CONFIGURATION:
        group = "sumlink-" + pathlib.Path(name).stem
        check(files[name] == (0o640, "root", group), f"{name}: {files[name]}")
    for name, (mode, user, _) in files.items():
        check(user == "root" and not mode & 0o022, f"{name} can be changed by others")


def pages(files):
    """The files of each package for people: manual pages, completions, documentation."""
    for name in ("man/man1/sumlink.1.gz", "man/man1/sumlink-client.1.gz", "bash-completion/completions/sumlink",
                 "fish/vendor_completions.d/sumlink.fish", "doc/sumlink/README.md", "doc/sumlink/docs/install.md"):
        check(f"/usr/share/{name}" in files, f"{name} is missing")
    check(any(name.endswith("/_sumlink") for name in files), "the completions of zsh are missing")


def units(files):
    for role in ("client", "server", "gateway"):
        check(f"/usr/lib/systemd/system/sumlink-{role}.service" in files, f"the unit of the {role} is missing")
    check("/usr/lib/systemd/system/sumlink-server.socket" in files, "the socket of the server is missing")
    check("/usr/lib/systemd/system/sumlink-edge.service" not in files, "a unit without its program")


def scripts(texts):
    """Each script is valid shell."""
    for name, text in texts.items():
        done = subprocess.run(["sh", "-n"], input=text, stderr=subprocess.PIPE)
        check(done.returncode == 0, f"{name}: {done.stderr}")


def deb(folder, _):
    package = one(folder, "*.deb")
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = listing(archive)
    common(files)
    pages(files)
    units(files)
    check("/usr/share/doc/sumlink/copyright" in files, "the copyright file is missing")
    control = run("dpkg-deb", "--field", package)
    check("Depends: systemd |" in control and "Recommends: ca-certificates, nftables, netbase" in control, control)
    with tempfile.TemporaryDirectory() as place:
        run("dpkg-deb", "--control", package, place)
        found = {file.name: file.read_bytes() for file in pathlib.Path(place).iterdir()}
    check(set(found.pop("conffiles").decode().split()) == CONFIGURATION, "conffiles")
    check({"postinst", "prerm", "postrm"} <= found.keys(), f"scripts: {list(found)}")
    scripts({name: found[name] for name in ("postinst", "prerm", "postrm")})


def rpm(folder, _):
    if not shutil.which("rpm"):
        return "not tested: no program rpm"
    package = one(folder, "*.rpm")

    def query(what):
        return run("rpm", "--query", "--package", "--queryformat", what, package)

    columns = "[%{FILENAMES} %{FILEMODES} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILEFLAGS}\n]"
    rows = [line.split() for line in query(columns).splitlines()]
    files = {name: (int(mode) & 0o7777, user, group) for name, mode, user, group, _ in rows}
    common(files)
    pages(files)
    units(files)
    # Configuration (1), not replaced (16).
    check({name for name, *_, flags in rows if int(flags) & 17 == 17} == CONFIGURATION, "configuration files")
    check(query("%{BUILDHOST}") == "localhost", f"the package names the machine {query('%{BUILDHOST}')}")
    texts = {kind: query(f"%{{{kind}}}").encode() for kind in ("PREIN", "POSTIN", "PREUN", "POSTUN")}
    check(b"u sumlink-client" in texts["PREIN"] and b"@SYSUSERS@" not in texts["PREIN"], "the users are missing")
    scripts(texts)
    return None


def apk(folder, _):
    with tarfile.open(one(folder, "*.apk"), "r:gz", ignore_zeros=True) as archive:
        members = [(member, archive.extractfile(member).read() if member.isfile() else b"") for member in archive]
    texts = {member.name: data for member, data in members if member.name.startswith(".")}
    files = listing([member for member, _ in members if not member.name.startswith(".")])
    common(files)
    pages(files)
    info = texts.pop(".PKGINFO").decode()
    check(all(" = " in line for line in info.splitlines()), f".PKGINFO: {info}")
    check(set(texts) == {".pre-install", ".pre-upgrade", ".post-upgrade", ".pre-deinstall"}, f"scripts: {list(texts)}")
    scripts(texts)
    scripts({member.name: data for member, data in members if "init.d/sumlink" in member.name})


LUCI = ("/usr/share/luci/menu.d/sumlink.json", "/usr/share/rpcd/acl.d/sumlink.json",
        "/www/luci-static/resources/view/sumlink/status.js")


def ipk(folder, _):
    with tarfile.open(one(folder, "*.ipk"), "r:gz") as package:
        parts = data_of(package)
    check(parts["debian-binary"] == b"2.0\n", "format")
    with tarfile.open(fileobj=io.BytesIO(parts["data.tar.gz"])) as archive:
        files = listing(archive)
        common(files)
        starts = {name: data for name, data in data_of(archive).items() if "/init.d/" in name}
    check("/lib/upgrade/keep.d/sumlink" in files, "a firmware upgrade would remove the keys")
    check(len(starts) == 3, f"service scripts: {list(starts)}")
    for name in LUCI:
        check(name in files, f"{name} is missing")
    with tarfile.open(fileobj=io.BytesIO(parts["control.tar.gz"])) as archive:
        control = data_of(archive)
    check(set(control["conffiles"].decode().split()) == CONFIGURATION, "conffiles")
    scripts(starts | {name: control[name] for name in ("postinst", "prerm")})


def archive(folder, program):
    """The tar archive: everything in one folder, and its program runs."""
    file = one(folder, "*.tar.gz")
    with tarfile.open(file) as packed, tempfile.TemporaryDirectory() as place:
        tops = {member.name.split("/")[0] for member in packed}
        check(tops == {file.name.removesuffix(".tar.gz")}, f"more than one folder: {tops}")
        run("tar", "--extract", "--directory", place, "--file", file)
        top = next(pathlib.Path(place).iterdir())
        check((top / "bin/sumlink").read_bytes() == program.read_bytes(), "another program")
        check(run(top / "bin/sumlink", "--version").startswith("sumlink "), "the program does not run")
        for name in ("etc/sumlink/client.toml", "lib/systemd/system/sumlink-server.service",
                     "lib/sysusers.d/sumlink.conf", "share/man/man1/sumlink.1.gz",
                     "share/zsh/site-functions/_sumlink", "share/licenses/sumlink/THIRD-PARTY"):
            check((top / name).exists(), f"{name} is missing")


def image(folder, program):
    """The container image: each digest is right, and its layer has the program and the authorities."""
    file = one(folder, "*.oci.tar")
    with tarfile.open(file) as packed:
        data = {member.name: packed.extractfile(member).read() for member in packed if member.isfile()}
    for name, blob in data.items():
        if name.startswith("blobs/"):
            check(name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", f"digest of {name}")

    def blob(descriptor):
        found = data["blobs/" + descriptor["digest"].replace(":", "/")]
        check(len(found) == descriptor["size"], f"size of {descriptor}")
        return found

    manifest = json.loads(blob(json.loads(data["index.json"])["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    check(config["config"]["Entrypoint"] == ["/usr/bin/sumlink"], "entry point")
    layer = io.BytesIO(blob(manifest["layers"][0]))
    with tarfile.open(fileobj=layer, mode="r:gz") as files:
        names = {member.name: member for member in files}
        check(files.extractfile("usr/bin/sumlink").read() == program.read_bytes(), "another program")
        check(names["usr/bin/sumlink"].mode == 0o755, "the program cannot be run")
        check(b"BEGIN CERTIFICATE" in files.extractfile("etc/ssl/certs/ca-certificates.crt").read(), "no authorities")
    if not shutil.which("skopeo"):
        return "without skopeo"
    seen = json.loads(run("skopeo", "inspect", f"oci-archive:{file}"))
    check(seen["Os"] == "linux" and seen["Labels"]["org.opencontainers.image.title"] == "sumlink", f"skopeo: {seen}")
    return None


TESTS = (deb, rpm, apk, ipk, archive, image)
