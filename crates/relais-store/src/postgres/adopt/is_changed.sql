-- Compares the copy of a waiting row with what the row sends now.
SELECT payload <> $3 OR headers <> $4
       OR ($5 AND CASE WHEN next_attempt_at > clock_timestamp() THEN next_attempt_at END
                  IS DISTINCT FROM $6::timestamptz)
FROM relais_outbox
WHERE message_id = $1 AND destination = $2
