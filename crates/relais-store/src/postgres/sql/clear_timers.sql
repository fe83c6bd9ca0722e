DELETE FROM relais_timer WHERE process_id = ANY ($1::uuid[])
