-- The received message of an adopted row: its own copy, or the message of the same id that was received before.
SELECT id, status, adopted_by IS NOT DISTINCT FROM $3::text AND adopted_key IS NOT DISTINCT FROM $4::text,
       payload IS DISTINCT FROM $5::text OR raw_payload_base64 IS DISTINCT FROM $6::text
       OR ($7 AND CASE WHEN next_attempt_at > clock_timestamp() THEN next_attempt_at END
                  IS DISTINCT FROM $8::timestamptz),
       CASE WHEN adopted_by = $3::text THEN adopted_key END
FROM relais_inbox
WHERE source_system = $1 AND message_id = $2
FOR NO KEY UPDATE
