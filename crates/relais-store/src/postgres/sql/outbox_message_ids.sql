SELECT message_id::text FROM (
    SELECT DISTINCT message_id FROM relais_outbox WHERE message_id BETWEEN $1::text::uuid AND $2::text::uuid
    ORDER BY message_id LIMIT $3) AS found
ORDER BY message_id
