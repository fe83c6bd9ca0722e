-- Moves blocked rows to relais_waiting, under the fence; no fetch walks over them again. Each is passed only while
-- what is in its way is locked: a release comes later and sees it, or has come before, and the row stays fresh.
-- The epoch of a lane proves its owner. Rows that another transaction holds are left to the next fetch, so that nothing waits here.
WITH fence AS MATERIALIZED (
    SELECT lane, epoch FROM relais_lane
    WHERE scope = $1 AND lane = ANY ($4::smallint[])
    ORDER BY lane
    FOR SHARE),
asked AS MATERIALIZED (
    SELECT s.id, s.behind
    FROM unnest($3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[]) AS s (id, lane, epoch, behind)
    JOIN fence ON fence.lane = s.lane AND fence.epoch = s.epoch),
fresh AS MATERIALIZED (
    SELECT o.id, coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key, o.next_attempt_at
    FROM relais_outbox AS o
    WHERE o.id = ANY (ARRAY(SELECT id FROM asked)) AND o.destination = $2 AND o.status = 'PENDING'
    FOR SHARE SKIP LOCKED),
holder AS MATERIALIZED (
    SELECT w.id FROM relais_waiting AS w
    WHERE w.id = ANY ($6::bigint[])
    FOR KEY SHARE SKIP LOCKED),
parked AS MATERIALIZED (
    SELECT p.key_hash FROM relais_parked_key AS p
    WHERE p.origin = 'outbox' AND p.destination = $2
      AND p.key_hash = ANY (ARRAY(SELECT md5(msg_key) FROM fresh))
    FOR KEY SHARE SKIP LOCKED),
passable AS MATERIALIZED (
    SELECT f.id, f.msg_key, f.next_attempt_at
    FROM fresh AS f
    JOIN asked AS s ON s.id = f.id
    WHERE f.next_attempt_at > now() OR s.behind IN (SELECT id FROM holder)
       OR md5(f.msg_key) IN (SELECT key_hash FROM parked)),
-- The first row of each key that stays fresh, also if the worker holds it ($7): later rows of the key stay too, or
-- they would come first.
stays AS MATERIALIZED (
    SELECT coalesce(o.msg_key, o.aggregate_id COLLATE "C") AS msg_key, min(o.id) AS id
    FROM relais_outbox AS o
    WHERE (o.id = ANY ($3::bigint[]) OR o.id = ANY ($7::bigint[])) AND o.status = 'PENDING'
      AND o.id NOT IN (SELECT id FROM passable)
      AND (SELECT w.id FROM relais_waiting AS w WHERE w.id = o.id LIMIT 1) IS NULL
    GROUP BY 1)
INSERT INTO relais_waiting (id, destination, msg_key, due_at, holds_key)
SELECT p.id, $2, p.msg_key, CASE WHEN p.next_attempt_at > now() THEN p.next_attempt_at END,
       coalesce(p.next_attempt_at <= now(), TRUE)
FROM passable AS p
WHERE NOT EXISTS (SELECT FROM stays WHERE stays.msg_key = p.msg_key AND stays.id < p.id)
ORDER BY p.id
ON CONFLICT (id) DO NOTHING
