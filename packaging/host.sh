# Changes how pmcd runs an agent that is a shared object, for ./Install host NAME and ./Remove host NAME.
#
#   sh host.sh install NAME BINARY     pmcd starts BINARY, which loads the shared object
#   sh host.sh remove NAME             pmcd loads the shared object itself again
#
# Only the agent's line of pmcd's configuration changes. The directory .host in the agent's directory has the line before
# the change, the line after it, and the program. If the script ends at any command, the line is either one, and install or
# remove can be repeated.

eval "$(sed -n '/^show()/p' "$(dirname "$0")/../pmda/src/dir/steps.in")"
say() { printf '%s\n' "$script: $(show "$1")" >&2; }
tell() { printf '%s\n' "$(show "$1")" 2>/dev/null || :; }
fail() { say "$1"; exit 1; }

task=$1 name=$2 binary=$3
case $task in install) script=Install ;; *) script=Remove ;; esac
case $name in
    '') fail "host needs the name of an agent in pmcd's configuration." ;;
    *[!A-Za-z0-9_]*) fail "$name: the name of an agent has letters, digits and _." ;;
esac
[ -f "$PCP_DIR/etc/pcp.env" ] || fail "PCP is not installed (there is no file \$PCP_DIR/etc/pcp.env)."
[ "$(id -u)" -eq 0 ] || fail "only root can change pmcd's configuration: sudo ./$script host $name"
. "$PCP_DIR/etc/pcp.env"
conf=$PCP_PMCDCONF_PATH
place=$PCP_PMDAS_DIR/$name/.host
umask 022
[ "$conf" != "$PCP_SYSCONF_DIR/local.conf" ] ||
    fail "PCP_PMCDCONF_PATH selects the agents of local contexts, and not those of pmcd: unset it; nothing is changed."
state="nothing is changed"
trap 'say "interrupted; $state."; exit 1' HUP INT TERM
trap : PIPE
# One Install or Remove at a time, as those of agents: each replaces pmcd's configuration by what it has read before.
if command -v flock >/dev/null && (umask 077; : >>/run/pmda.lock) 2>/dev/null
then
    exec 9>>/run/pmda.lock
    flock -w 120 9 || { say "another Install or Remove is running."; exit 75; }
fi

# lines KIND: prints the numbers of the agent's lines before the section [access]; those that are a shared object, or others.
lines() { awk -v name="$name" -v kind="$1" '/^\[access\]/ { exit } $1 == name && ($3 == "dso") == (kind == "dso") { print NR }' "$conf"; }

# replace NUMBER FILE: replaces a line of pmcd's configuration by that of a file. The rest stays byte for byte.
replace()
{
    fresh=${conf%/*}/.pmcd.conf.host
    rm -f "$fresh"
    if cp -p "$conf" "$fresh" &&
        { head -n $(($1 - 1)) "$conf"; cat "$2"; tail -n +$(($1 + 1)) "$conf"; } >"$fresh" &&
        sync "$fresh" && mv -f "$fresh" "$conf" && sync "${conf%/*}"
    then
        state="the line of $name in $conf is changed, but pmcd may not have read it: pmsignal -s HUP pmcd"
        return
    fi
    rm -f "$fresh"
    fail "$conf cannot be written."
}

# notify: makes pmcd read its configuration, if it runs.
notify()
{
    sighups() { pmprobe -v pmcd.sighups 2>/dev/null | awk '{ print $2 == 1 ? $3 : -1 }'; }
    had=$(sighups)
    [ "${had:--1}" -ge 0 ] || { say "pmcd does not run; its next start has the change."; return; }
    pmsignal -a -s HUP pmcd >/dev/null 2>&1
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
    do
        [ "$(sighups)" = "$had" ] || return 0
        sleep 0.5
    done
    fail "pmcd does not react to SIGHUP; see $PCP_LOG_DIR/pmcd/pmcd.log."
}

# status: prints the status that pmcd has for the agent; 0 is connected.
status() { pminfo -f pmcd.agent.status 2>/dev/null | sed -n "s/.* or \"$name\"\] value //p"; }

install()
{
    number=$(lines dso)
    if [ -z "$number" ]
    then
        [ ! -f "$place/before" ] || fail "$name already runs behind pmda-host; ./Remove host $name changes it back."
        [ -z "$(lines other)" ] || fail "$name is not a shared object in $conf, so that there is nothing to change."
        fail "$conf has no agent $name."
    fi
    case $number in *[!0-9]*) fail "$conf has more than one line for $name." ;; esac
    line=$(sed -n "${number}p" "$conf")
    # shellcheck disable=SC2086
    set -f -- $line
    domain=$2 entry=$4 object=$5
    case $object in /*) ;; *) object=$PCP_PMDAS_DIR/$object ;; esac
    [ $# -eq 5 ] && [ -f "$object" ] || fail "the line of $name in $conf names no shared object: $line"
    rm -rf "$place.new"
    mkdir -p "$place.new" && cp "$binary" "$place.new/pmda-host" && chmod 755 "$place.new/pmda-host" &&
        sed -n "${number}p" "$conf" >"$place.new/before" &&
        printf '%s\t%s\tpipe\tbinary\t\t%s\n' "$name" "$domain" \
            "$place/pmda-host --so $object --entry $entry -d $domain" >"$place.new/after" &&
        rm -rf "$place" && mv "$place.new" "$place" || fail "$place cannot be written."
    replace "$number" "$place/after"
    notify
    sts=$(status)
    [ -z "$sts" ] || [ "$sts" -eq 0 ] || fail "pmcd cannot start the host of $name; see $PCP_LOG_DIR/pmcd/$name.log, and ./Remove host $name."
    tell "$name now runs behind pmda-host, with its log in $PCP_LOG_DIR/pmcd/$name.log."
}

remove()
{
    [ -f "$place/before" ] || fail "$name does not run behind pmda-host."
    number=$(awk -v file="$place/after" 'BEGIN { getline line <file } /^\[access\]/ { exit } $0 == line { print NR; exit }' "$conf")
    if [ -n "$number" ]
    then
        replace "$number" "$place/before"
        notify
    elif [ -z "$(lines dso)" ]
    then
        fail "the line of $name in $conf has been changed since ./Install host; restore it by hand: $(cat "$place/before")"
    fi
    rm -rf "$place" "$place.new"
    tell "pmcd loads $name itself again."
}

$task
