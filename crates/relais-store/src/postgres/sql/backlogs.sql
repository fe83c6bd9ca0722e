-- In two parts, because each has its own small index.
SELECT destination, sum(amount)::bigint, min(oldest)
FROM (SELECT destination, count(*) AS amount, min(created_at) AS oldest FROM relais_outbox
      WHERE status = 'PENDING' AND next_attempt_at IS NULL GROUP BY destination
      UNION ALL
      SELECT destination, count(*), min(created_at) FROM relais_outbox
      WHERE status = 'PENDING' AND next_attempt_at IS NOT NULL GROUP BY destination) AS part
GROUP BY destination
ORDER BY destination
