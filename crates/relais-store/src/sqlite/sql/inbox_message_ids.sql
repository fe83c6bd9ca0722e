-- Differs from postgres: without LATERAL, each source is walked one id after the other.
WITH RECURSIVE source (name) AS (
    SELECT min(source_system) FROM relais_inbox
    UNION ALL
    SELECT (SELECT min(source_system) FROM relais_inbox WHERE source_system > name)
    FROM source
    WHERE name IS NOT NULL),
found (name, message_id, number) AS (
    SELECT name, (SELECT min(i.message_id) FROM relais_inbox AS i
                  WHERE i.source_system = name AND i.message_id BETWEEN ?1 AND ?2), 1
    FROM source
    WHERE name IS NOT NULL
    UNION ALL
    SELECT name, (SELECT min(i.message_id) FROM relais_inbox AS i
                  WHERE i.source_system = name AND i.message_id > found.message_id AND i.message_id <= ?2),
           number + 1
    FROM found
    WHERE message_id IS NOT NULL AND number < ?3)
SELECT DISTINCT message_id FROM found WHERE message_id IS NOT NULL ORDER BY message_id LIMIT ?3
