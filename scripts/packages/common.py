"""The base of all package formats."""

import pathlib
import shutil

# Files that each installation of users changes; the tests compare the users themselves.
USERS = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock", "/etc/.updated")


class Format:
    """The base of all package formats. `root` is the system, a `root.Root`. A class of services.py starts services."""

    glob = ""
    # Prefixes of the manager's own files.
    database = ()
    # The suffix of the new version of a configuration file that has been edited.
    new_config = ""
    how = ""
    # Whether the manager itself runs, and not unpacked.py.
    manager = True
    # The name of an edited configuration file after removal.
    edited = "{}"

    def __init__(self, root):
        self.root = root
        self.prepare_services()

    def copy(self, package):
        """Copies a package into the system; returns its path there."""
        shutil.copy(package, self.root.path / "tmp")
        return f"/tmp/{pathlib.Path(package).name}"

    def pid(self, name):
        """Process of a service; None if it does not run."""
        file = self.root.path / self.pidfile.format(name)
        return file.read_text().strip() if file.exists() else None

    def purge(self):
        """Removes the rest, as docs/install.md says."""
        self.remove()
        self.root.run("sh", "-c", "rm -rf /etc/sumlink /var/lib/sumlink*")
