// Writes an order and its message in one transaction: go run . ID TOTAL [fail]
// DATABASE_URL, for example postgres://shop@localhost/shop?sslmode=disable, says where.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"

	_ "github.com/lib/pq"
)

func main() {
	total, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := place(context.Background(), db, os.Args[1], total); err != nil {
		log.Fatal(err)
	}
}

func place(ctx context.Context, db *sql.DB, orderID string, total int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit

	if _, err := tx.ExecContext(ctx,
		`INSERT INTO orders (id, total) VALUES ($1, $2)`, orderID, total); err != nil {
		return err
	}
	payload, err := json.Marshal(map[string]any{"orderId": orderID, "total": total})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx,
		`INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
		 VALUES ('Order', $1, 'OrderCreated', 'orders', $2)`,
		orderID, string(payload)); err != nil { // a string: []byte would be sent as bytes
		return err
	}
	if err := check(); err != nil {
		return err
	}
	return tx.Commit()
}

func check() error {
	if len(os.Args) > 3 {
		return errors.New("the order cannot be placed")
	}
	return nil
}
