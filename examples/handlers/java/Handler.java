// A service that handles messages for relais in the database of relais. It writes its messages to
// relais_outbox itself, in the transaction of its own changes and its mark, and answers 204.
// PORT, JDBC_URL and RELAIS_SECRET configure it.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Instant;
import java.util.Base64;
import java.util.concurrent.Executors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

class Handler {
    static final byte[] SECRET =
        Base64.getDecoder().decode(System.getenv("RELAIS_SECRET").replaceFirst("^whsec_", ""));

    /** Checks the signature as Standard Webhooks defines it. */
    static boolean isSigned(HttpExchange call, byte[] body) throws GeneralSecurityException {
        String at = header(call, "webhook-timestamp");
        if (at.isEmpty() || Math.abs(Instant.now().getEpochSecond() - Long.parseLong(at)) > 300) {
            return false;
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(SECRET, "HmacSHA256"));
        mac.update((header(call, "webhook-id") + "." + at + ".").getBytes(StandardCharsets.UTF_8));
        String expected = "v1," + Base64.getEncoder().encodeToString(mac.doFinal(body));
        for (String one : header(call, "webhook-signature").split(" ")) {
            if (MessageDigest.isEqual(one.getBytes(StandardCharsets.UTF_8), expected.getBytes(StandardCharsets.UTF_8))) {
                return true;
            }
        }
        return false;
    }

    /** Writes the invoice, its message and the mark in one commit, once for each message. */
    static void handle(Connection db, String callId, String messageId, String order) throws SQLException {
        db.setAutoCommit(false);
        try (PreparedStatement mark = db.prepareStatement(
                 "INSERT INTO handled_call (id) VALUES (?) ON CONFLICT (id) DO NOTHING");
             PreparedStatement invoice = db.prepareStatement(
                 "INSERT INTO invoices (order_id, cents)"
                 + " SELECT o ->> 'orderId', (o ->> 'total')::bigint FROM (SELECT ?::json AS o) AS event");
             PreparedStatement message = db.prepareStatement(
                 "INSERT INTO relais_outbox"
                 + " (aggregate_type, aggregate_id, event_type, destination, payload, causation_id)"
                 + " SELECT 'Order', o ->> 'orderId', 'InvoiceCreated', 'mail',"
                 + " json_build_object('orderId', o ->> 'orderId', 'cents', (o ->> 'total')::bigint)::text, ?"
                 + " FROM (SELECT ?::json AS o) AS event")) {
            mark.setString(1, callId);
            if (mark.executeUpdate() == 1) {
                invoice.setString(1, order);
                invoice.executeUpdate();
                message.setString(1, messageId);
                message.setString(2, order);
                message.executeUpdate();
            }
            db.commit();
        } catch (SQLException e) {
            db.rollback();
            throw e;
        }
    }

    static int answer(HttpExchange call) throws IOException, GeneralSecurityException {
        byte[] body = call.getRequestBody().readAllBytes();
        if (!call.getRequestMethod().equals("POST")) {
            return 404; // `relais check --connect`
        }
        if (!isSigned(call, body)) {
            return 401;
        }
        String order = new String(body, StandardCharsets.UTF_8);
        // A service has a JSON library for this.
        if (!order.matches("(?s).*\"orderId\"\\s*:\\s*\".*") || !order.matches("(?s).*\"total\"\\s*:\\s*[0-9].*")) {
            return 422; // a dead letter
        }
        try (Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            handle(db, header(call, "idempotency-key"), header(call, "message-id"), order);
            return 204;
        } catch (SQLException e) {
            return 503; // relais waits, and no attempt is used
        }
    }

    static String header(HttpExchange call, String name) {
        String value = call.getRequestHeaders().getFirst(name);
        return value == null ? "" : value;
    }

    public static void main(String[] args) throws IOException, SQLException {
        try (Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"));
             Statement tables = db.createStatement()) {
            tables.execute("CREATE TABLE IF NOT EXISTS invoices (order_id TEXT NOT NULL, cents BIGINT NOT NULL)");
            tables.execute("CREATE TABLE IF NOT EXISTS handled_call (id TEXT PRIMARY KEY)");
        }
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "0"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", call -> {
            int status;
            try {
                status = answer(call);
            } catch (GeneralSecurityException e) {
                status = 500;
            }
            call.sendResponseHeaders(status, -1);
            call.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(10));
        server.start();
        System.out.println("listening on " + server.getAddress().getPort());
    }
}
