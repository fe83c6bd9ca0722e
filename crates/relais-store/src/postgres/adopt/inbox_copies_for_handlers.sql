-- The copies of a message for handlers with an inbox of their own, as inbox_copy_of_row.
SELECT i.id, i.status, i.adopted_by IS NOT DISTINCT FROM $3::text AND i.adopted_key IS NOT DISTINCT FROM $4::text,
       i.payload IS DISTINCT FROM $5::text OR i.raw_payload_base64 IS DISTINCT FROM $6::text
       OR ($7 AND CASE WHEN i.next_attempt_at > clock_timestamp() THEN i.next_attempt_at END
                  IS DISTINCT FROM $8::timestamptz),
       CASE WHEN i.adopted_by = $3::text THEN i.adopted_key END
FROM relais_inbox AS i
WHERE i.message_id = $2::text
  AND i.source_system = ANY (ARRAY(
      SELECT substr(l.scope, 7) || '::' || CASE WHEN strpos($1::text, '::') > 0
                                                THEN substr($1::text, strpos($1::text, '::') + 2)
                                                ELSE $1::text END
      FROM relais_lane AS l
      WHERE l.lane = 0
        AND starts_with(l.scope, 'inbox:' || CASE WHEN strpos($1::text, '::') > 0
                                                  THEN split_part($1::text, '::', 1) ELSE '' END || '@')))
ORDER BY i.id
FOR NO KEY UPDATE
