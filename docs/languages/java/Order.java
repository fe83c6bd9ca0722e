// Writes an order and its message in one transaction: java -cp postgresql.jar Order.java ID TOTAL [fail]
// JDBC_URL, for example jdbc:postgresql://localhost/shop?user=shop, names the database.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

class Order {
    public static void main(String[] args) throws SQLException {
        try (Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            place(db, args[0], Long.parseLong(args[1]), args.length > 2);
        }
    }

    static void place(Connection db, String orderId, long total, boolean fail) throws SQLException {
        db.setAutoCommit(false);
        try (PreparedStatement order = db.prepareStatement(
                 "INSERT INTO orders (id, total) VALUES (?, ?)");
             PreparedStatement message = db.prepareStatement(
                 "INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)"
                 + " VALUES ('Order', ?, 'OrderCreated', 'orders',"
                 + " json_build_object('orderId', ?::text, 'total', ?::bigint)::text)")) {
            order.setString(1, orderId);
            order.setLong(2, total);
            order.executeUpdate();

            message.setString(1, orderId);
            message.setString(2, orderId);
            message.setLong(3, total);
            message.executeUpdate();

            check(fail);
            db.commit();
        } catch (SQLException | RuntimeException e) {
            db.rollback();
            throw e;
        }
    }

    static void check(boolean fail) {
        if (fail) {
            throw new IllegalStateException("the order cannot be placed");
        }
    }
}
