-- Finds rows that were made fresh by hand below the position of their destination, a page of $2 rows behind $1 at a
-- time: they become due. So do rows with an id of no sequence, which are below each position. Returns how many it read, and the last of them.
WITH page AS MATERIALIZED (
    SELECT o.id, o.destination, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key, o.next_attempt_at,
           o.status = 'PENDING' AS pending
    FROM relais_outbox AS o
    WHERE o.id > $1
    ORDER BY o.id
    LIMIT $2),
found AS (
    INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
    SELECT p.id, p.destination, p.msg_key, coalesce(p.next_attempt_at, clock_timestamp()), TRUE
    FROM page AS p
    WHERE p.pending
      AND p.id <= coalesce((SELECT s.position FROM relais_outbox_position AS s
                            WHERE s.destination = p.destination), 0)
    ON CONFLICT (id) DO NOTHING)
SELECT (SELECT count(*) FROM page), (SELECT max(id) FROM page)
