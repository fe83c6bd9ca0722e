-- The lease of a worker covers its lanes in all scopes. Only the database's clock counts.
-- The term stays only if the lease had not expired: then no other worker took a lane of this one. As in
-- lost_workers, a time too far ahead is of a clock that was set back.
INSERT INTO relais_lease AS l (worker, lease_until, term)
VALUES ($1, clock_timestamp() + $2::bigint * INTERVAL '1 millisecond',
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ON CONFLICT (worker) DO UPDATE
SET lease_until = clock_timestamp() + $2::bigint * INTERVAL '1 millisecond',
    term = CASE WHEN l.lease_until > clock_timestamp()
                 AND l.lease_until <= clock_timestamp()
                     + greatest(INTERVAL '1 hour', 3 * $2::bigint * INTERVAL '1 millisecond')
                THEN l.term
                ELSE greatest(l.term + 1, excluded.term) END
RETURNING l.term
