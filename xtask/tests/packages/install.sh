# install.sh PACKAGE FOLDER SCRIPT: runs a script of this folder in a copy of this machine, which is removed afterwards.
# There the package is /tmp/relais.ENDING, and service.sh is beside the script.
package=$1
folder=$2
script=$3
ip link set lo up
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
mount -t proc proc "$folder/root/proc"
mount --rbind /dev "$folder/root/dev"
mkdir -p "$folder/root/tmp"
cp "$package" "$folder/root/tmp/relais.${package##*.}"
cp "$(dirname "$0")/$script" "$(dirname "$0")/service.sh" "$folder/root/tmp"
# Neither what is installed here already, nor the index of all manual pages of the machine.
rm -rf "$folder/root/etc/relais" "$folder/root/var/lib/relais" "$folder/root/var/lib/man-db/auto-update"
chroot "$folder/root" sh -eux "/tmp/$script"
