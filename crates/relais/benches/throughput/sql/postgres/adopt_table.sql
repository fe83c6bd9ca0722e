-- The outbox of an order service, with its own indexes.
DROP TABLE IF EXISTS outbox;
CREATE TABLE outbox (
    id uuid PRIMARY KEY,
    aggregate_type varchar(255) NOT NULL,
    aggregate_id uuid NOT NULL,
    event_type varchar(255) NOT NULL,
    payload text NOT NULL,
    status varchar(50) NOT NULL,
    created_at timestamp NOT NULL,
    sent_at timestamp,
    error_message text);
CREATE INDEX idx_outbox_status_created ON outbox (status, created_at);
CREATE INDEX idx_outbox_aggregate ON outbox (aggregate_id);
