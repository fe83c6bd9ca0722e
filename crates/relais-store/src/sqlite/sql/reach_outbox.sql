-- As in postgres, with times as text that sorts.
WITH RECURSIVE destination (name) AS (
    SELECT min(o.destination) FROM relais_outbox AS o
    UNION ALL
    SELECT (SELECT min(o.destination) FROM relais_outbox AS o WHERE o.destination > destination.name)
    FROM destination
    WHERE destination.name IS NOT NULL),
placed (name, position) AS MATERIALIZED (
    SELECT name, coalesce((SELECT p.position FROM relais_outbox_position AS p WHERE p.destination = name), 0)
    FROM destination
    WHERE name IS NOT NULL),
few (yes) AS MATERIALIZED (
    SELECT ?1 IS 'PENDING'
           AND (SELECT count(*) <= ?3 FROM (
                    SELECT 1 FROM placed
                    CROSS JOIN relais_outbox AS f INDEXED BY relais_outbox_destination
                    WHERE f.destination = placed.name AND f.id > placed.position AND f.status = 'PENDING'
                      AND ?1 IS 'PENDING'
                    LIMIT ?3 + 1))
           AND (SELECT count(*) <= ?3 FROM (SELECT 1 FROM relais_waiting LIMIT ?3 + 1))),
last (id) AS (
    SELECT id FROM (
        SELECT d.origin_id AS id FROM relais_dead_letter AS d INDEXED BY relais_dead_letter_failed
        WHERE ?1 IS 'FAILED' AND d.origin = 'outbox'
          AND (d.resolved_at IS NULL OR d.resolution = 'discarded')
          AND d.origin_id < coalesce(?2, 9223372036854775807)
        ORDER BY d.origin_id DESC
        LIMIT 1 OFFSET ?3 - 1)
    UNION ALL
    SELECT id FROM (
        SELECT id FROM relais_outbox
        WHERE ?1 IS NOT 'FAILED'
          AND id < coalesce(?2, 9223372036854775807)
        ORDER BY id DESC
        LIMIT iif((SELECT yes FROM few), 0, 1) OFFSET ?3 - 1))
SELECT id, ?4 IS NULL OR created_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', -?4 || ' seconds')
FROM relais_outbox
WHERE id = (SELECT id FROM last)
