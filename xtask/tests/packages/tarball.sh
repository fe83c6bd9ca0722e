# The tarball, installed as docs/install.md says, in a copy of this machine.
. /tmp/service.sh
tar -xzf /tmp/relais.gz -C /usr/local --strip-components=1
systemd-sysusers
install -D -m 0640 -g relais /usr/local/share/doc/relais/examples/relais.toml /etc/relais/relais.toml
# systemd makes it (StateDirectory).
install -d -o relais -g relais -m 0750 /var/lib/relais
test "$(command -v relais)" = /usr/local/bin/relais
service /usr/local/lib/systemd/system/relais.service
