NOT EXISTS (SELECT 1 FROM relais_inbox AS o
            WHERE o.source_system = :source_system AND o.message_id = :message_id)
