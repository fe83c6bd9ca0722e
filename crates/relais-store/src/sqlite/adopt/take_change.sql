DELETE FROM relais_adopted_change WHERE id = ?1 RETURNING message_id
