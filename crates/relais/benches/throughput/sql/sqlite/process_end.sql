DELETE FROM relais_timer WHERE process_id = ?1
