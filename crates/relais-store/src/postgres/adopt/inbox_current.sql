-- The message of a row, if it is still to be handled.
SELECT :source_system, :message_id, :payload, :raw, :next_attempt, :has_time
FROM :table AS t
WHERE t.:id = $1::text:::key_type AND :pending
