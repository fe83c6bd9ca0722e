SELECT id::text FROM relais_dead_letter WHERE id BETWEEN $1::text::uuid AND $2::text::uuid ORDER BY id LIMIT $3
