NOT EXISTS (SELECT FROM relais_outbox AS o
            WHERE o.message_id = :message_id AND o.destination = :destination
              AND o.adopted_by = :name AND o.adopted_key = :key)
