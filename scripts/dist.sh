#!/usr/bin/env bash
# Packs a static sumlink: deb, rpm, apk and ipk packages, a tar archive and a container image. The
# same program and SOURCE_DATE_EPOCH give the same bytes.
#
#   scripts/dist.sh PROGRAM TARGET FOLDER
#
# TARGET is the Rust target of PROGRAM. Variables:
#
#   PACKAGE_VERSION     version of the packages (default: that of Cargo.toml)
#   PACKAGE_MAINTAINER  the publisher's name and mail address
#   PACKAGE_CONFIG      folder with client.toml and server.toml (default: packaging)
#   SOURCE_DATE_EPOCH   time of all files (default: that of the last commit)
#   STATIC_RUNNER       runs a program for another processor, for example qemu-aarch64-static
#   OPENWRT_ARCH        architecture of the ipk, as `opkg print-architecture` prints it on the router
set -euo pipefail

if [ $# -ne 3 ]; then
    echo "usage: $0 PROGRAM TARGET FOLDER" >&2
    exit 2
fi
program=$(realpath "$1")
target=$2
mkdir -p "$3"
out=$(realpath "$3")
cd "$(dirname "$0")/.."
source=$PWD

# The names of the architecture in nfpm and in containers, and a common one of OpenWrt.
case "$target" in
    x86_64-*) arch=amd64 image=amd64 openwrt=x86_64 ;;
    aarch64-*) arch=arm64 image=arm64 openwrt=aarch64_generic ;;
    armv7-*) arch=arm7 image=arm/v7 openwrt=arm_cortex-a7_neon-vfpv4 ;;
    *)
        echo "$0: no packages for $target; x86_64, aarch64 and armv7 have some" >&2
        exit 2
        ;;
esac
version=${PACKAGE_VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
maintainer=${PACKAGE_MAINTAINER:-The sumlink authors <sumlink@localhost>}
openwrt=${OPENWRT_ARCH:-$openwrt}
nfpm=$(scripts/tool.sh nfpm)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022

# common/ is for all packages; deb/ and site/ have files with a place of each distribution.
mkdir -p "$stage"/{usr/bin,etc/sumlink,common/share/{man/man1,bash-completion/completions},openrc,openwrt,licenses}
mkdir -p "$stage"/common/share/{fish/vendor_completions.d,doc/sumlink/{docs,examples/systemd}}
mkdir -p "$stage"/systemd/{systemd/system,sysusers.d} "$stage"/site/zsh/site-functions
mkdir -p "$stage"/deb/{zsh/vendor-completions,doc/sumlink,lintian/overrides}
install -m 0755 "$program" "$stage/usr/bin/sumlink"
cp "${PACKAGE_CONFIG:-packaging}"/{client,server}.toml "$stage/etc/sumlink/"

run() { ${STATIC_RUNNER:-} "$program" "$@"; }
share=$stage/common/share
run man --out "$share/man/man1" > /dev/null
gzip -9n "$share"/man/man1/*
run completions bash > "$share/bash-completion/completions/sumlink"
run completions fish > "$share/fish/vendor_completions.d/sumlink.fish"
run completions zsh > "$stage/site/zsh/site-functions/_sumlink"
cp "$stage/site/zsh/site-functions/_sumlink" "$stage/deb/zsh/vendor-completions/"
cp README.md CHANGELOG.md "$share/doc/sumlink/"
cp docs/*.md "$share/doc/sumlink/docs/"
cp packaging/client.toml packaging/server.toml "$share/doc/sumlink/examples/"
cp packaging/systemd/congestion.conf "$share/doc/sumlink/examples/systemd/"
cp -r packaging/grafana packaging/haproxy packaging/nginx packaging/prometheus "$share/doc/sumlink/examples/"

# Without the edge node, which is a program of its own.
cp packaging/systemd/sumlink-{client,gateway,server}.service packaging/systemd/sumlink-server.socket \
    "$stage/systemd/systemd/system/"
grep -v '^u sumlink-edge ' packaging/systemd/sysusers.conf > "$stage/systemd/sysusers.d/sumlink.conf"
cp packaging/openrc/* "$stage/openrc/"
cp packaging/openwrt/sumlink-* "$stage/openwrt/"
# A page of LuCI, where that is installed.
install -Dm 0644 packaging/openwrt/luci/menu.d/sumlink.json "$stage/luci/usr/share/luci/menu.d/sumlink.json"
install -Dm 0644 packaging/openwrt/luci/acl.d/sumlink.json "$stage/luci/usr/share/rpcd/acl.d/sumlink.json"
install -Dm 0644 packaging/openwrt/luci/view/sumlink/status.js \
    "$stage/luci/www/luci-static/resources/view/sumlink/status.js"
chmod 0755 "$stage"/openrc/* "$stage"/openwrt/*

cp LICENSE-APACHE LICENSE-MIT "$stage/licenses/"
scripts/notices.py --target "$target" > "$stage/licenses/THIRD-PARTY"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n'
    printf 'Files: *\nCopyright: the sumlink authors\nLicense: Apache-2.0 or MIT\n'
    printf ' The text of Apache-2.0 is in /usr/share/common-licenses/Apache-2.0. That of MIT follows.\n .\n'
    sed -e 's/^$/./' -e 's/^/ /' LICENSE-MIT
    printf '\nComment: THIRD-PARTY in this folder has the licenses of the libraries in the program.\n'
} > "$stage/deb/doc/sumlink/copyright"
gzip -9nc "$stage/licenses/THIRD-PARTY" > "$stage/deb/doc/sumlink/THIRD-PARTY.gz"
{
    printf 'sumlink (%s-1) unstable; urgency=medium\n\n' "$version"
    printf '  * Changes are listed in /usr/share/doc/sumlink/CHANGELOG.md.\n\n'
    printf ' -- %s  %s\n' "$maintainer" "$(date -uRd "@$epoch")"
} | gzip -9n > "$stage/deb/doc/sumlink/changelog.Debian.gz"
# The static program is the point: it runs on every distribution.
echo 'sumlink: statically-linked-binary [usr/bin/sumlink]' > "$stage/deb/lintian/overrides/sumlink"

cp -r packaging "$stage/scripts"
sed -i -e '/^@SYSUSERS@$/{' -e "r $stage/systemd/sysusers.d/sumlink.conf" -e 'd' -e '}' "$stage/scripts/rpm/pre"

find "$stage" -type d -exec chmod 0755 {} +
find "$stage" -exec touch --no-dereference --date="@$epoch" {} +

long="one connection over every link of a machine
sumlink bonds the links of a machine, such as DSL, Wi-Fi and modems, into one
connection to a server. Programs use it through a SOCKS5 or HTTP proxy, or as
the default route of the machine and of the LAN behind it."
cd "$stage"
for format in deb rpm apk ipk; do
    if [ $format = ipk ]; then arch=$openwrt; fi
    # An apk has one line only.
    if [ $format = apk ]; then description=${long%%$'\n'*}; else description=$long; fi
    PACKAGE_ARCH=$arch PACKAGE_VERSION=$version PACKAGE_MAINTAINER=$maintainer PACKAGE_DESCRIPTION=$description \
        SOURCE_DATE_EPOCH=$epoch "$nfpm" package --config "$source/packaging/nfpm.yaml" --packager $format --target "$out/" > /dev/null
done

# The archive has everything in one folder, laid out as below /usr.
name=sumlink-$version-$target
mkdir -p "$name"/{bin,etc/sumlink,lib,share/{zsh,licenses}}
cp usr/bin/sumlink "$name/bin/"
cp etc/sumlink/* "$name/etc/sumlink/"
cp -r common/share/. "$name/share/"
cp -r systemd/. "$name/lib/"
cp -r site/zsh/. "$name/share/zsh/"
cp -r licenses "$name/share/licenses/sumlink"
cp -r openrc "$name/share/doc/sumlink/examples/openrc"
tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -c "$name" \
    | gzip -9n > "$out/$name.tar.gz"

"$source/scripts/oci.py" --program usr/bin/sumlink --licenses licenses --arch "$image" --version "$version" \
    --time "$epoch" "$out/sumlink-$version-${target%%-*}.oci.tar"
