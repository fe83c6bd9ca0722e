-- The content of a row, if it is still to be sent.
SELECT :destination, :payload, :headers, :next_attempt, :has_time
FROM :table AS t
WHERE t.:id = ?1 AND :pending
