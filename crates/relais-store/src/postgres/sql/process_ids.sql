SELECT process_id FROM relais_process WHERE process_id BETWEEN $1 AND $2 ORDER BY process_id LIMIT $3
