# Stands in for OpenWrt's /lib/functions.sh, with the functions that the scripts use.
group_add_next() {
	grep -q "^$1:" /etc/group || groupadd --system "$1"
	sed -n "s/^$1:[^:]*:\([0-9]*\):.*/\1/p" /etc/group
}
user_exists() { grep -q "^$1:" /etc/passwd; }
# NAME UID GID DESCRIPTION HOME
user_add() { useradd --system --no-create-home --gid "$3" --comment "$4" --home-dir "$5" --shell /bin/false "$1"; }
