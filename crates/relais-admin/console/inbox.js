// Received messages: the list, and the detail page of one row.

import { h } from "./dom.js";
import { get, may, post } from "./api.js";
import { ago, bytes, count, moment } from "./format.js";
import { attempts, button, code, copyable, facts, heading, headers, panel, payload, status } from "./parts.js";
import { SINCE, listPage } from "./table.js";
import { decide, settle } from "./dialog.js";
import { story } from "./message.js";

export function list(context) {
  return listPage(context, {
    title: "Inbox",
    about: "Received messages, newest first. A message is acknowledged to its source only after it is stored here.",
    base: "#/inbox",
    path: "/inbox",
    filters: [
      { name: "status", label: "Status", options: [["", "all"], ["received", "received"], ["retry", "retry"], ["processed", "handled"], ["failed", "failed"], ["serde_error", "undecodable"]] },
      { name: "type", label: "Type" },
      { name: "key", label: "Key" },
      { name: "source", label: "Source" },
      SINCE,
    ],
    columns: [
      { title: "Row", cell: (row) => `${row.id}`, kind: "numeric" },
      { title: "Status", cell: (row) => status(row.status) },
      { title: "Type", cell: (row) => row.event_type ?? "–" },
      { title: "Key", cell: (row) => code(row.msg_key) },
      { title: "Source", cell: (row) => row.source_system },
      { title: "Message", cell: (row) => code(row.message_id), kind: "wide" },
      { title: "Attempts", cell: (row) => count(row.attempts), kind: "numeric" },
      { title: "Received", cell: (row) => ago(row.received_at) },
    ],
    key: (row) => row.id,
    href: (row) => (row.status === "SERDE_ERROR" ? `#/repair/${row.id}` : `#/inbox/${row.id}`),
    empty: ["No messages yet", "Send a message to one of your sources. It appears here as soon as it is committed."],
  });
}

export async function show(context) {
  const row = await get(`/inbox/${encodeURIComponent(context.params[0])}`, { signal: context.signal });
  const retry = () => settle(context, decide({ title: "Retry this message", text: "Retries this message ahead of others with the same key and resets its attempt count.", confirm: "Retry", act: (who) => post(`/inbox/${row.id}/retry`, who) }), "The message will be retried.");
  const actions = row.status === "FAILED" && may("operator") ? [button("Retry", retry, { kind: "primary", picture: "retry" })] : [];
  const side = facts([
    ["Status", status(row.status)],
    ["Message id", copyable(row.message_id)],
    ["Type", row.event_type],
    ["Key", copyable(row.msg_key)],
    ["Source", row.source_system],
    ["Topic", row.topic],
    ["Partition and offset", row.partition_num === null ? null : `${row.partition_num} · ${row.offset_num}`],
    ["Aggregate", row.aggregate_id],
    ["Lane", count(row.lane)],
    ["Received", moment(row.received_at)],
    ["Happened", row.event_ts ? moment(row.event_ts) : null],
    ["Handled", row.processed_at ? moment(row.processed_at) : null],
    ["Next attempt", row.next_attempt_at ? ago(row.next_attempt_at) : null],
    ["Attempts", count(row.attempts)],
    ["Size", bytes(row.payload_bytes)],
    ["Stage", row.error_stage],
    ["Code", row.error_code],
  ]);
  return h("div", { class: "page" },
    heading(row.event_type ?? "Message", ["Inbox row ", h("strong", null, String(row.id)), ", received ", ago(row.received_at)], actions),
    row.error_message ? panel("Last error", h("p", { class: "error-text" }, row.error_message)) : null,
    h("div", { class: "split" },
      h("div", { class: "main-part" },
        panel("Payload", payload(row.payload, { truncated: row.payload_truncated, size: row.payload_bytes, download: `/api/v1/inbox/${row.id}/payload` })),
        panel("Headers", headers(row.headers)),
        panel("Attempts", attempts(row.history)),
        await story(`inbox:${row.id}`, context.signal)),
      h("aside", { class: "side-part", "aria-label": "Facts" }, panel(null, side))));
}
