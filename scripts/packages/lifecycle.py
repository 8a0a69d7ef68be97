"""The life of a package: install, start, upgrade while it runs, and leave nothing behind."""

import re

from common import USERS

NOBODY = 65534
SERVER, GATEWAY, CLIENT = "sumlink-server", "sumlink-gateway", "sumlink-client"
SOCKET = "/run/sumlink-server/control.sock"
# Changes that an administrator makes to the examples.
EDIT = "# edited by the administrator\n"
# Written by services and by the administrator: not part of the package.
OWN = ("/etc/sumlink", "/var/lib/sumlink", "/var/lib/sumlink-client", "/var/lib/sumlink-server")


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def difference(before, after):
    """The names that are new, lost or changed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def users(root):
    return {line.split(":")[0]: line for line in (root.path / "etc/passwd").read_text().splitlines()}


def changes(system, before):
    """The files that differ from before, apart from the manager's own files and the users'."""
    ignore = (*system.database, *USERS, "/run/calls")
    found = difference(before, system.root.files())
    return [name for name in found if not name.startswith(ignore)]


def configure(root):
    """Fills in the examples, as docs/install.md says."""
    root.run("sh", "-ec", """
        cd /etc/sumlink
        for role in client server; do
            sumlink keygen --out $role.key
            chown sumlink-$role: $role.key
        done
        sed -i "s|CLIENT-PUBLIC-KEY|$(sumlink pubkey client.key)|" server.toml
        sed -i "s|SERVER-PUBLIC-KEY|$(sumlink pubkey server.key)|; s|SERVER-HOST|192.0.2.1|" client.toml
    """)
    for role in ("client", "server"):
        file = root.path / f"etc/sumlink/{role}.toml"
        file.write_text(EDIT + file.read_text() + ("\n[gateway]\n" if role == "client" else ""))


def installed(system, version):
    """The files, their modes, the users, and that nothing runs yet."""
    root = system.root
    check(version in system.version(), f"installed is {system.version()}, not {version}")
    root.run("sumlink", "--version", user=NOBODY)
    for name, mode, owner in (
        ("/usr/bin/sumlink", "755", "root root"), ("/etc/sumlink", "755", "root root"),
        ("/etc/sumlink/client.toml", "640", f"root {CLIENT}"), ("/etc/sumlink/server.toml", "640", f"root {SERVER}"),
    ):
        is_now = root.run("stat", "--format=%a %U %G", name).stdout.strip()
        check(is_now == f"{mode} {owner}", f"{name} is {is_now}, not {mode} {owner}")
    for user in (CLIENT, SERVER):
        fields = users(root)[user].split(":")
        check(fields[5] == "/etc/sumlink" and re.search("nologin|false", fields[6]), f"user: {fields}")
        check(0 < int(fields[2]) < 1000, f"{user} is no system user: {fields}")
    for name in (CLIENT, SERVER, GATEWAY):
        check(system.pid(name) is None, f"{name} was started before it is configured")
    # An example is no configuration yet, and says where.
    refused = root.run("sumlink", "check", "/etc/sumlink/client.toml", check=False)
    check(refused.returncode == 3 and "server_key" in refused.stdout, f"check of the example: {refused.stdout}")


def verified(system):
    """The service files are valid."""
    root = system.root
    if (root.path / "usr/lib/systemd/system/sumlink-server.service").exists():
        for name in (f"{CLIENT}.service", f"{SERVER}.service", f"{SERVER}.socket", f"{GATEWAY}.service"):
            unit = f"/usr/lib/systemd/system/{name}"
            done = root.run("systemd-analyze", "verify", "--man=no", unit, check=False)
            check(done.returncode == 0 and "sumlink" not in done.stdout, f"{unit}: {done.stdout}")
    else:
        for name in (CLIENT, SERVER, GATEWAY):
            check((root.path / f"etc/init.d/{name}").stat().st_mode & 0o777 == 0o755, f"{name} is no program")
            root.run("sh", "-n", f"/etc/init.d/{name}")


def runs_from_disk(root, pid):
    """Waits until the process runs the program on disk, and not a replaced one."""
    root.wait("sh", "-c", f'[ "$(readlink /proc/{pid}/exe)" = /usr/bin/sumlink ]')


def table(root):
    return root.run("nft", "list", "table", "inet", "sumlink", check=False).returncode == 0


def start(system):
    """Server and gateway run as services, and the server is enabled."""
    root = system.root
    configure(root)
    system.service(SERVER, "enable")
    system.service(SERVER, "start")
    system.service(GATEWAY, "start")
    root.wait("sumlink", "status", "--control", SOCKET)
    root.wait("nft", "list", "table", "inet", "sumlink")
    owner = root.run("stat", "--format=%U", f"/proc/{system.pid(SERVER)}").stdout.strip()
    check(owner == SERVER, f"the server runs as {owner}")


def upgraded(system, before_pids, edited):
    """The services run the new program; configuration and modes are those of the administrator."""
    root = system.root
    for name in (SERVER, GATEWAY):
        pid = system.pid(name)
        check(pid and pid != before_pids[name], f"{name} was not restarted")
        runs_from_disk(root, pid)
    check(system.pid(CLIENT) is None, "the upgrade started a service that did not run")
    root.wait("sumlink", "status", "--control", SOCKET)
    for name, text in edited.items():
        check((root.path / name).read_text() == text, f"{name} was overwritten")
        check((root.path / (name + system.new_config)).exists(), f"the new {name} is missing")
    mode = root.run("stat", "--format=%a %G", "/etc/sumlink/server.toml").stdout.strip()
    check(mode == f"440 {SERVER}", f"server.toml has become {mode}")


def removed(system, pids, before):
    """No process, firewall rule, route or file of the package is left."""
    root = system.root
    for name, pid in pids.items():
        check(root.run("test", "-e", f"/proc/{pid}", check=False).returncode, f"{name} still runs")
    check(not table(root), "the firewall table of the gateway is left")
    for command in (("ip", "rule"), ("ip", "-6", "rule"), ("ip", "route", "show", "table", "all")):
        left = re.findall(r"proto 74\b", root.run(*command).stdout)
        check(not left, f"{command}: routes of the gateway are left")
    left = [name for name in changes(system, before) if not name.startswith(OWN)]
    left = [name for name in left if not name.startswith("/run/")]
    check(not left, f"left behind: {left}")


def lifecycle(system, old, new, before):
    """All steps, with the packages of two versions; returns a line for each step that was skipped."""
    root, skipped = system.root, []
    names = users(root)
    if system.manager:
        refused = system.install(old[0], check=False, user=NOBODY)
        check(refused.returncode != 0 and refused.stdout.strip(), f"without privileges: {refused.stdout!r}")
        check(not changes(system, before), f"an unprivileged installation leaves {changes(system, before)}")
    else:
        skipped.append("unprivileged installation")
    system.install(old[0])
    installed(system, old[1])
    verified(system)
    start(system)
    root.run("chmod", "0440", "/etc/sumlink/server.toml")
    edited = {name: (root.path / name).read_text() for name in ("etc/sumlink/client.toml", "etc/sumlink/server.toml")}
    pids = {name: system.pid(name) for name in (SERVER, GATEWAY)}
    system.install(new[0])
    check(new[1] in system.version(), f"after the upgrade, installed is {system.version()}")
    upgraded(system, pids, edited)
    pids = {name: system.pid(name) for name in (SERVER, GATEWAY)}
    # The gateway is killed: its firewall rules and routes must go with the package.
    root.wait("nft", "list", "table", "inet", "sumlink")
    root.run("sh", "-c", f"kill -KILL {pids[GATEWAY]}")
    check(table(root), "a killed gateway should leave its firewall table until `sumlink down`")
    system.remove()
    removed(system, pids, before)
    # The administrator's keys and edited files stay.
    for role in ("client", "server"):
        check((root.path / f"etc/sumlink/{role}.key").exists(), f"{role}.key was removed")
        kept = root.path / "etc/sumlink" / system.edited.format(f"{role}.toml")
        check(kept.exists() and EDIT in kept.read_text(), f"the edited {role}.toml was removed")
    # The users exist already, and a second installation works as the first.
    system.install(new[0])
    root.run("sumlink", "--version")
    system.purge()
    left = [name for name in changes(system, before) if not name.startswith("/run/")]
    check(not left, f"left behind after purging: {left}")
    added = set(users(root)) - set(names)
    check(added == {CLIENT, SERVER}, f"users: {added}")
    return skipped
