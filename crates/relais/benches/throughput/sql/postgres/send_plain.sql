INSERT INTO plain_send (destination, msg_key, event_type, payload) VALUES ($1, $2, $3, $4)
