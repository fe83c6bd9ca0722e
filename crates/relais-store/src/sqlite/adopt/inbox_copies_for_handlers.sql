-- The copies of a message for handlers with an inbox of their own, as inbox_copy_of_row.
SELECT i.id, i.status, i.adopted_by IS ?3 AND i.adopted_key IS ?4,
       i.payload IS NOT ?5 OR i.raw_payload_base64 IS NOT ?6
       OR (?7 AND CASE WHEN i.next_attempt_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') THEN i.next_attempt_at END
                  IS NOT ?8),
       CASE WHEN i.adopted_by = ?3 THEN i.adopted_key END
FROM relais_inbox AS i
WHERE i.message_id = ?2
  AND i.source_system IN (
      SELECT substr(l.scope, 7) || '::' || CASE WHEN instr(?1, '::') > 0 THEN substr(?1, instr(?1, '::') + 2)
                                                ELSE ?1 END
      FROM relais_lane AS l
      WHERE l.lane = 0
        AND instr(l.scope, 'inbox:' || substr(?1, 1, max(instr(?1, '::') - 1, 0)) || '@') = 1)
ORDER BY i.id
