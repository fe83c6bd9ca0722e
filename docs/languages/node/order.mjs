// Writes an order and its message in one transaction: node order.mjs ID TOTAL [fail]
// DATABASE_URL, for example postgres://shop@localhost/shop, says where.

import pg from 'pg';

const [orderId, total, fail] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

async function place(orderId, total) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await client.query('INSERT INTO orders (id, total) VALUES ($1, $2)', [orderId, total]);
    await client.query(
      `INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
       VALUES ('Order', $1, 'OrderCreated', 'orders', $2)`,
      [orderId, JSON.stringify({ orderId, total })],
    );
    check();
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

function check() {
  if (fail) throw new Error('the order cannot be placed');
}

try {
  await place(orderId, Number(total));
} finally {
  await pool.end();
}
