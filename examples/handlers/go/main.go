// A service that handles messages for relais in the database of relais. It writes its messages to
// relais_outbox itself, in the transaction of its own changes and its mark, and answers 204.
// PORT, DATABASE_URL and RELAIS_SECRET configure it.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/lib/pq"
)

type service struct {
	db     *sql.DB
	secret []byte
}

type order struct {
	OrderID string `json:"orderId"`
	Total   *int64 `json:"total"`
}

// isSigned checks the signature as Standard Webhooks defines it.
func (s service) isSigned(headers http.Header, body []byte) bool {
	at := headers.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(headers.Get("webhook-id") + "." + at + "."))
	mac.Write(body)
	expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, one := range strings.Fields(headers.Get("webhook-signature")) {
		if hmac.Equal([]byte(one), []byte(expected)) {
			return true
		}
	}
	return false
}

// handle writes the invoice, its message and the mark in one commit, once for each message.
func (s service) handle(ctx context.Context, callID, messageID string, o order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit

	marked, err := tx.ExecContext(ctx,
		`INSERT INTO handled_call (id) VALUES ($1) ON CONFLICT (id) DO NOTHING`, callID)
	if err != nil {
		return err
	}
	if rows, err := marked.RowsAffected(); err != nil || rows == 0 {
		return err // relais repeats the call: it is handled
	}
	if _, err := tx.ExecContext(ctx,
		`INSERT INTO invoices (order_id, cents) VALUES ($1, $2)`, o.OrderID, o.Total); err != nil {
		return err
	}
	payload, err := json.Marshal(map[string]any{"orderId": o.OrderID, "cents": o.Total})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx,
		`INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload, causation_id)
		 VALUES ('Order', $1, 'InvoiceCreated', 'mail', $2, $3)`,
		o.OrderID, string(payload), messageID); err != nil {
		return err
	}
	return tx.Commit()
}

func (s service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var o order
	switch {
	case r.Method != http.MethodPost: // `relais check --connect`
		w.WriteHeader(http.StatusNotFound)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case !s.isSigned(r.Header, body):
		w.WriteHeader(http.StatusUnauthorized)
	case json.Unmarshal(body, &o) != nil || o.OrderID == "" || o.Total == nil || *o.Total < 0: // a dead letter
		http.Error(w, "no orderId or no total", http.StatusUnprocessableEntity)
	default:
		// Not r.Context(): a lost connection must not end the transaction.
		err := s.handle(context.Background(), r.Header.Get("idempotency-key"), r.Header.Get("message-id"), o)
		if err != nil { // relais waits, and no attempt is used
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func main() {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("RELAIS_SECRET"), "whsec_"))
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS invoices (order_id TEXT NOT NULL, cents BIGINT NOT NULL);
		CREATE TABLE IF NOT EXISTS handled_call (id TEXT PRIMARY KEY)`); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(http.Serve(listener, service{db, secret}))
}
