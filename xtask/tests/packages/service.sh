# service UNIT: starts the program as the unit says, as its user and without rights, asks for its health, stops it.
value() { sed -n "s/^$1=//p" "$unit"; }

service() {
    unit=$1
    systemd-analyze verify "$unit" >/tmp/verified 2>&1 || { cat /tmp/verified; exit 1; }
    if grep relais /tmp/verified; then exit 1; fi
    as_user="setpriv --reuid $(value User) --regid $(value Group) --init-groups --no-new-privs --bounding-set=-all"
    relais="$as_user relais --config /etc/relais/relais.toml"
    cd "$(value WorkingDirectory)"
    if $relais health; then exit 1; fi
    (umask "$(value UMask)" && exec $as_user $(value ExecStart)) &
    pid=$!
    tries=0
    until $relais health --ready; do
        kill -0 $pid
        tries=$((tries + 1))
        test $tries -lt 1500
        sleep 0.2
    done
    $relais health --timeout 60s
    $relais status
    kill -TERM $pid
    wait $pid
    test "$(stat -c '%U %a' relais.db)" = 'relais 600'
}
