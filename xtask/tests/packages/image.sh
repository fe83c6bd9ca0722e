# image.sh ROOT: runs the unpacked image as a container would, with a read-only root.
# IMAGE_USER, IMAGE_ENV, IMAGE_COMMAND and IMAGE_HEALTH are what its configuration says.
root=$1
ip link set lo up
cat >"$root/etc/relais/relais.toml" <<'END'
[store]
url = "sqlite:/var/lib/relais/relais.db"

[admin]
listen = "127.0.0.1:7070"

[[source]]
name = "hook"
kind = "http"
aggregate_id = "payload:/order"

[[route]]
on = "OrderPlaced"
destination = "orders"

[[destination]]
name = "orders"
kind = "log"
END
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o "uid=${IMAGE_USER%:*},mode=0700" tmpfs "$root/var/lib/relais"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
contained="env -i $IMAGE_ENV /usr/sbin/chroot --userspec=$IMAGE_USER $root"

code=0
$contained $IMAGE_HEALTH || code=$?
test $code -eq 1
$contained $IMAGE_COMMAND &
pid=$!
tries=0
until $contained $IMAGE_HEALTH; do
    kill -0 $pid
    tries=$((tries + 1))
    test $tries -lt 1500
    sleep 0.2
done
$contained /usr/bin/relais health --ready --timeout 60s
$contained /usr/bin/relais status
kill -TERM $pid
wait $pid
