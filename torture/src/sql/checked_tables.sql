-- The columns the checker reads, for its own tests.
CREATE TABLE shop_order (msg_key TEXT NOT NULL, number INTEGER NOT NULL);
CREATE TABLE relais_outbox (
    id INTEGER, status TEXT, payload TEXT, msg_key TEXT, aggregate_id TEXT, attempts INTEGER, error_code TEXT);
CREATE TABLE relais_inbox (id INTEGER, status TEXT, payload TEXT);
CREATE TABLE relais_parked_key (msg_key TEXT);
CREATE TABLE relais_dead_letter (
    origin TEXT, msg_key TEXT, attempts INTEGER, error_class TEXT, error_message TEXT);
CREATE TABLE relais_lane (scope TEXT, lane INTEGER, owner TEXT);
CREATE TABLE relais_lease (worker TEXT, lease_until TEXT);
CREATE TABLE rewritten (what TEXT);
CREATE TABLE claim (message_id TEXT, claims INTEGER);
