-- Removes workers that were lost an hour ago. The next owners of their lanes quarantine the first rows.
WITH old AS MATERIALIZED (
    SELECT worker FROM relais_lease
    WHERE lease_until < clock_timestamp() - INTERVAL '1 hour'
    ORDER BY worker
    FOR UPDATE SKIP LOCKED),
freed AS (
    UPDATE relais_lane SET owner = NULL, unclean = TRUE WHERE owner IN (SELECT worker FROM old)),
unannounced AS (
    DELETE FROM relais_worker WHERE worker IN (SELECT worker FROM old))
DELETE FROM relais_lease WHERE worker IN (SELECT worker FROM old)
