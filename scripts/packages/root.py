"""A throw-away Debian system in namespaces of its own: files, processes and network."""

import hashlib
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).parent
PACKAGES = "systemd,nftables,netbase,ca-certificates,iproute2,passwd"

# The first process of the namespace: collects the orphans that end.
INIT = """
import os, time
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.05)
"""


def base(folder):
    """The system below all others, made by debootstrap on first use; `folder` keeps it."""
    folder = folder / f"debian-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:8]}"
    done = folder / ".done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print("making a minimal Debian with debootstrap", flush=True)
        log = folder.with_suffix(".log")
        with log.open("w") as output:
            made = subprocess.run(
                ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", folder],
                stdout=output, stderr=subprocess.STDOUT)
        if made.returncode:
            raise SystemExit(f"debootstrap failed: {log}")
        done.touch()
    return folder


class Root:
    """A copy-on-write view of the base, removed at the end with all processes in it.

    Its network is empty but for the loopback interface, so that no test reaches the machine's routes or
    firewall.
    """

    def __init__(self, lower):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="sumlink-packages-"))
        for name in ("upper", "work", "root"):
            (self.place / name).mkdir()
        self.mounted = self.place / "root"
        # The mounts belong to the namespace and end with it.
        layers = f"lowerdir={lower},upperdir={self.place}/upper,workdir={self.place}/work"
        script = f"""
            mount -t overlay overlay -o {layers} {self.mounted}
            mount -t proc proc {self.mounted}/proc
            mount -t tmpfs tmpfs {self.mounted}/run
            ip link set lo up
            echo ready
            exec python3 -c "$0"
        """
        log = (self.place / "namespaces.log").open("w")
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--",
             "sh", "-ec", script, INIT],
            stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        if self.holder.stdout.readline() != "ready\n":
            raise SystemExit(f"the namespaces cannot be made: {(self.place / 'namespaces.log').read_text()}")
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        self.pid = int(children[0])
        # From outside, through the namespace.
        self.path = pathlib.Path(f"/proc/{self.pid}/root{self.mounted}")
        device = self.path / "dev/net/tun"
        device.parent.mkdir(parents=True, exist_ok=True)
        if not device.exists():
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(10, 200))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        self.holder.wait()
        self.holder.stdout.close()
        shutil.rmtree(self.place)

    def outside(self, *command):
        """A command of this machine in the namespaces, with the system's files at `self.mounted`."""
        spaces = ("--mount", "--net", "--ipc", "--uts", "--pid")
        return ["nsenter", "--target", str(self.pid), *spaces, "--", *map(str, command)]

    def run(self, *command, check=True, user=None, inside=True, env=()):
        """Runs a command; returns it with its output. `user` is a number without any right."""
        if user is not None:
            command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command)
        if inside:
            command = ("chroot", self.mounted, "env", "-i", "HOME=/root", "LC_ALL=C",
                       "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *env, *command)
        # In a file, because daemons that a command starts inherit its output.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                self.outside(*command), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            output.seek(0)
            done.stdout = output.read()
        if check and done.returncode:
            raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
        return done

    def wait(self, *command, seconds=30, **options):
        """Repeats a command until it succeeds."""
        end = time.monotonic() + seconds
        while (done := self.run(*command, check=False, **options)).returncode:
            if time.monotonic() > end:
                raise AssertionError(f"{' '.join(map(str, command))} does not succeed:\n{done.stdout}")
            time.sleep(0.1)
        return done

    def stand_in(self, name, *paths):
        """Installs a program of stand-ins/ at each path."""
        for path in paths:
            to = self.path / path.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            # Debian's addgroup is a link to adduser.
            to.unlink(missing_ok=True)
            shutil.copy(HERE / "stand-ins" / name, to)
            to.chmod(0o755)

    def files(self, ignore=()):
        """Each file with its kind, mode, owner and size or target; folders without a size."""
        found = {}
        pending = [self.path]
        while pending:
            for item in os.scandir(pending.pop()):
                name = item.path.removeprefix(str(self.path))
                if name in ("/proc", "/dev", "/sys", "/tmp") or any(name.startswith(prefix) for prefix in ignore):
                    continue
                info = item.stat(follow_symlinks=False)
                what = info.st_size
                if item.is_symlink():
                    what = os.readlink(item.path)
                elif item.is_dir():
                    what = "folder"
                    pending.append(item.path)
                found[name] = (oct(info.st_mode), info.st_uid, info.st_gid, what)
        return found
