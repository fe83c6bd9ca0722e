-- Fails with 25P01 outside a transaction, and changes nothing inside one.
SAVEPOINT relais_check;
RELEASE SAVEPOINT relais_check
