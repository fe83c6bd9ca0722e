// Received messages: the list, and the detail page of one row.

import { h } from "./dom.js";
import { get, may } from "./api.js";
import { ago, bytes, count, moment } from "./format.js";
import { code, copyable, errorText, heading, panel, split, status } from "./parts.js";
import { SINCE, listPage } from "./table.js";
import { retryButton } from "./dialog.js";
import { contents } from "./message.js";

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
  const actions = row.status === "FAILED" && may("operator") ? [retryButton(context, `/inbox/${row.id}/retry`)] : [];
  const side = [
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
  ];
  return h("div", { class: "page" },
    heading(row.event_type ?? "Message", ["Inbox row ", h("strong", null, String(row.id)), ", received ", ago(row.received_at)], actions),
    row.error_message ? panel("Last error", errorText(null, row.error_message)) : null,
    split(await contents("inbox", row, context.signal), side));
}
