# The life of the Debian package, in a copy of this machine.
. /tmp/service.sh
export DEBIAN_FRONTEND=noninteractive
dpkg --purge relais

dpkg --force-unsafe-io --install /tmp/relais.deb
dpkg --status relais | grep '^Status: install ok installed'
dpkg-query --show --showformat '${Conffiles}' relais | grep ' /etc/relais/relais.toml '
test "$(stat -c '%U:%G %a' /etc/relais)" = 'root:relais 750'
test "$(stat -c '%U:%G %a' /etc/relais/relais.toml)" = 'root:relais 640'
test "$(stat -c '%U:%G %a' /var/lib/relais)" = 'relais:relais 750'
gzip -dc /usr/share/man/man1/relais.1.gz | grep -q '^.TH relais 1'
service /usr/lib/systemd/system/relais.service

# The same package again keeps what the administrator wrote, and who may read it.
echo '# edited' >>/etc/relais/relais.toml
chmod 0600 /etc/relais/relais.toml
dpkg --force-unsafe-io --install /tmp/relais.deb
grep '^# edited' /etc/relais/relais.toml
test "$(stat -c %a /etc/relais/relais.toml)" = 600

dpkg --remove relais
test ! -e /usr/bin/relais
test ! -e /usr/lib/systemd/system/relais.service
test -e /etc/relais/relais.toml
dpkg --purge relais
test ! -e /etc/relais
# A database is never removed by a package.
test -e /var/lib/relais/relais.db
