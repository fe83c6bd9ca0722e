SELECT :payload, :headers FROM :table AS t WHERE t.:id = $1::text:::key_type AND :pending
