"""The service managers of the distributions, which stand-ins/ replace inside the system."""


class Systemd:
    """The services of Debian and Fedora."""

    pidfile = "run/{}.service.pid"

    def prepare_services(self):
        root = self.root
        (root.path / "usr/bin/systemctl").rename(root.path / "usr/bin/systemctl.real")
        root.stand_in("systemctl", "/usr/bin/systemctl")
        (root.path / "run/systemd/system").mkdir(parents=True)

    def service(self, name, verb, check=True):
        return self.root.run("systemctl", verb, name, check=check)


class OpenRc:
    """The services of Alpine."""

    pidfile = "run/openrc/{}.pid"

    def prepare_services(self):
        root = self.root
        root.stand_in("openrc-run", "/sbin/openrc-run")
        root.stand_in("rc-service", "/usr/sbin/rc-service")
        root.stand_in("rc-update", "/usr/sbin/rc-update")
        root.stand_in("addgroup", "/usr/sbin/addgroup")
        root.stand_in("adduser", "/usr/sbin/adduser")
        (root.path / "run/openrc").mkdir()
        (root.path / "run/openrc/softlevel").touch()
        (root.path / "etc/runlevels/default").mkdir(parents=True)

    def service(self, name, verb, check=True):
        if verb == "enable":
            return self.root.run("rc-update", "add", name)
        return self.root.run("rc-service", name, verb, check=check)


class Procd:
    """The services of OpenWrt."""

    pidfile = "run/procd-{}.pid"

    def prepare_services(self):
        root = self.root
        root.stand_in("rc.common", "/etc/rc.common")
        root.stand_in("functions.sh", "/lib/functions.sh")
        (root.path / "etc/rc.d").mkdir()
        (root.path / "lib/upgrade/keep.d").mkdir(parents=True)
        (root.path / "run/lock").mkdir()

    def service(self, name, verb, check=True):
        return self.root.run(f"/etc/init.d/{name}", verb, check=check)
