-- The lowest fresh row above the mark, of these lanes, and above the position, of all lanes: neither may pass it.
-- The second is asked for only at times: with $4.
SELECT (SELECT o.id
        FROM relais_outbox AS o
        WHERE (o.destination, o.id) > ($1, $3) AND o.destination <= $1 AND o.status = 'PENDING'
          AND (hashtext(coalesce(o.msg_key, o.aggregate_id COLLATE "C")) & 63) = ANY ($2::smallint[])
          AND (SELECT w.id FROM relais_waiting AS w WHERE w.id = o.id LIMIT 1) IS NULL
        ORDER BY o.destination, o.id
        LIMIT 1),
       CASE WHEN $4::bigint IS NOT NULL
            THEN (SELECT o.id
                  FROM relais_outbox AS o
                  WHERE (o.destination, o.id) > ($1, $4) AND o.destination <= $1 AND o.status = 'PENDING'
                    AND (SELECT w.id FROM relais_waiting AS w WHERE w.id = o.id LIMIT 1) IS NULL
                  ORDER BY o.destination, o.id
                  LIMIT 1) END
