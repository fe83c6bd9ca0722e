// A service that handles messages for relais and keeps its own database. It stores each answer with its own
// mark, and gives the same answer again when relais repeats a call.
// PORT, DATABASE_URL and RELAIS_SECRET configure it.

import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const secret = Buffer.from(process.env.RELAIS_SECRET.replace(/^whsec_/, ''), 'base64');

// Checks the signature as Standard Webhooks defines it.
function isSigned(headers, body) {
  const at = headers['webhook-timestamp'] ?? '0';
  const mac = createHmac('sha256', secret).update(`${headers['webhook-id']}.${at}.`).update(body);
  const expected = Buffer.from(`v1,${mac.digest('base64')}`);
  const signatures = (headers['webhook-signature'] ?? '').split(' ').map((one) => Buffer.from(one));
  const known = signatures.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  return known && Math.abs(Date.now() / 1000 - Number(at)) < 300;
}

// Returns the answer. The invoice, the mark and the answer are one commit.
async function handle(callId, order) {
  if (typeof order?.orderId !== 'string' || !(order.total >= 0)) {
    return { outcome: 'fail', code: 'INVALID_ORDER', message: 'no orderId or no total' };
  }
  const number = randomUUID(); // another one in each call: only the stored answer is the same
  const payload = { orderId: order.orderId, number, cents: order.total };
  const answer = { outcome: 'done', messages: [{ destination: 'mail', event_type: 'InvoiceCreated', payload }] };
  const db = await pool.connect();
  try {
    await db.query('BEGIN');
    const marked = await db.query(
      'INSERT INTO handled_call (id, answer) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING',
      [callId, JSON.stringify(answer)],
    );
    if (marked.rowCount === 0) { // relais repeats the call: the same answer, and no second invoice
      await db.query('ROLLBACK');
      const found = await db.query('SELECT answer FROM handled_call WHERE id = $1', [callId]);
      return JSON.parse(found.rows[0].answer);
    }
    await db.query(
      'INSERT INTO invoices (order_id, number, cents) VALUES ($1, $2, $3)',
      [order.orderId, number, order.total],
    );
    await db.query('COMMIT');
    return answer;
  } catch (error) {
    await db.query('ROLLBACK').catch(() => {});
    throw error;
  } finally {
    db.release();
  }
}

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  const reply = (status, value) => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(value && JSON.stringify(value));
  };
  if (request.method !== 'POST') return reply(404); // `relais check --connect`
  if (!isSigned(request.headers, body)) return reply(401, { error: 'the signature does not match' });
  try {
    reply(200, await handle(request.headers['idempotency-key'], JSON.parse(body)));
  } catch (error) { // relais waits, and no attempt is used
    reply(503, { error: error.message });
  }
});

await pool.query(
  'CREATE TABLE IF NOT EXISTS invoices (order_id TEXT NOT NULL, number TEXT NOT NULL, cents BIGINT NOT NULL)',
);
await pool.query('CREATE TABLE IF NOT EXISTS handled_call (id TEXT PRIMARY KEY, answer TEXT NOT NULL)');
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  console.log('listening on', server.address().port);
});
