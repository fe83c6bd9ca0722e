NOT EXISTS (SELECT 1 FROM relais_outbox AS o
            WHERE o.adopted_by = :name AND o.adopted_key = :key AND o.destination = :destination)
