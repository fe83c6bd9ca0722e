NOT EXISTS (SELECT FROM relais_inbox AS o
            WHERE o.source_system = :source_system AND o.message_id = :message_id)
