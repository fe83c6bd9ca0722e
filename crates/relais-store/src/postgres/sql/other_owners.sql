-- Owners of the other lanes of the scope, how many each has, and whether its lease is valid; free lanes have
-- none.
SELECT count(*), coalesce(bool_and(l.lease_until > clock_timestamp()), FALSE)
FROM relais_lane AS o
LEFT JOIN relais_lease AS l ON l.worker = o.owner
WHERE o.scope = $1 AND o.owner IS DISTINCT FROM $2
GROUP BY o.owner
