-- Differs from postgres: fresh and waiting rows are counted by their own partial index each; the
-- oldest row is the one with the lowest id, because ids commit in order.
SELECT b.destination, b.amount, (SELECT o.created_at FROM relais_outbox AS o WHERE o.id = b.first_id)
FROM (SELECT destination, sum(amount) AS amount, min(first_id) AS first_id
      FROM (SELECT destination, count(*) AS amount, min(id) AS first_id
            FROM relais_outbox
            WHERE status = 'PENDING' AND next_attempt_at IS NULL
            GROUP BY destination
            UNION ALL
            SELECT destination, count(*), min(id)
            FROM relais_outbox
            WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL
            GROUP BY destination)
      GROUP BY destination) AS b
ORDER BY b.destination
