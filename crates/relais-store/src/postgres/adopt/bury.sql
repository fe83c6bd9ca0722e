-- Moves failed rows of :table into its table of dead letters. Each copy is locked before it is read. A row that the
-- application has changed meanwhile stays: it is sent again.
WITH failed AS MATERIALIZED (
    SELECT o.adopted_key::text:::key_type AS key, o.attempts, o.error_message
    FROM relais_outbox AS o
    WHERE o.id = ANY ($1::bigint[]) AND o.adopted_by = $2 AND o.status = 'FAILED'
      AND NOT EXISTS (SELECT FROM relais_adopted_change AS c
                WHERE c.adopted_by = $2 AND c.adopted_key = o.adopted_key AND c.kind = 'reset')
    FOR NO KEY UPDATE SKIP LOCKED),
locked AS MATERIALIZED (
    SELECT t.:id AS key FROM :table AS t
    WHERE t.:id = ANY (ARRAY(SELECT key FROM failed))
    ORDER BY t.:id
    FOR UPDATE),
moved AS (
    DELETE FROM :table AS t USING failed AS f, locked AS l
    WHERE t.:id = f.key AND l.key = f.key
    RETURNING t.:id AS id, t.:event_type AS type, t.:payload AS content, t.:created_at AS created_at,
              f.attempts, f.error_message)
INSERT INTO :dead_letters (id, original_message_id, type, content, error, retry_count, created_at,
                           dead_lettered_at)
SELECT gen_random_uuid(), m.id, m.type, m.content, left(m.error_message, :error_max), m.attempts, m.created_at,
       clock_timestamp()
FROM moved AS m
