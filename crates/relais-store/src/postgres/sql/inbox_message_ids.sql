-- Each source is walked by the unique index and gives $3 ids at most, so that a prefix of a million ids
-- costs no more than one of ten.
WITH RECURSIVE source (name) AS (
    SELECT min(source_system) FROM relais_inbox
    UNION ALL
    SELECT (SELECT min(i.source_system) FROM relais_inbox AS i WHERE i.source_system > source.name)
    FROM source
    WHERE source.name IS NOT NULL)
SELECT DISTINCT found.message_id FROM source CROSS JOIN LATERAL (
    SELECT i.message_id FROM relais_inbox AS i
    WHERE i.source_system = source.name AND i.message_id BETWEEN $1 AND $2
    ORDER BY i.message_id
    LIMIT $3) AS found
ORDER BY found.message_id
LIMIT $3
