SELECT process_id::text FROM relais_process WHERE process_id BETWEEN $1::text::uuid AND $2::text::uuid
ORDER BY process_id LIMIT $3
