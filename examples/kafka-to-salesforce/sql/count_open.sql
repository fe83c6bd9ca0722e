SELECT
    (SELECT count(*) FROM relais_outbox WHERE status <> 'DISPATCHED')
    + (SELECT count(*) FROM relais_inbox WHERE status NOT IN ('PROCESSED', 'SERDE_ERROR'))
    + (SELECT count(*) FROM relais_bulk_job WHERE finished_at IS NULL)
