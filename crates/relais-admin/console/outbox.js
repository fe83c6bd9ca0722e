// Messages to send and sent ones: the list, and the detail page of one row.

import { h } from "./dom.js";
import { get, may, post } from "./api.js";
import { ago, bytes, count, moment } from "./format.js";
import { button, code, copyable, errorText, heading, panel, split, status, trace } from "./parts.js";
import { SINCE, listPage } from "./table.js";
import { decide, retryButton, settle } from "./dialog.js";
import { contents } from "./message.js";

export function list(context) {
  return listPage(context, {
    title: "Outbox",
    about: "Messages to deliver and delivered ones, newest first. A row exists if, and only if, its transaction was committed.",
    base: "#/outbox",
    path: "/outbox",
    filters: [
      { name: "status", label: "Status", options: [["", "all"], ["pending", "pending"], ["dispatched", "delivered"], ["failed", "failed"]] },
      { name: "type", label: "Type" },
      { name: "key", label: "Key" },
      { name: "destination", label: "Destination" },
      SINCE,
    ],
    columns: [
      { title: "Row", cell: (row) => `${row.id}`, kind: "numeric" },
      { title: "Status", cell: (row) => status(row.status) },
      { title: "Type", cell: (row) => row.event_type },
      { title: "Key", cell: (row) => code(row.msg_key) },
      { title: "Destination", cell: (row) => row.destination },
      { title: "Last error", cell: (row) => [row.error_code, row.error_message].filter(Boolean).join(": ") || "–", kind: "wide" },
      { title: "Attempts", cell: (row) => count(row.attempts), kind: "numeric" },
      { title: "Created", cell: (row) => ago(row.created_at) },
    ],
    key: (row) => row.id,
    href: (row) => `#/outbox/${row.id}`,
    empty: ["The outbox is empty", "A handler, a route, a process or your own INSERT into relais_outbox writes rows; they appear here with their commit."],
  });
}

export async function show(context) {
  const row = await get(`/outbox/${encodeURIComponent(context.params[0])}`, { signal: context.signal });
  const fail = () => settle(context, decide({ title: "Fail this message", text: "Turns it into a dead letter, which can be retried or discarded. A worker that has it in flight may still deliver it once.", confirm: "Fail", danger: true, act: (who) => post(`/outbox/${row.id}/fail`, who) }), "The message is now a dead letter.");
  const waits = row.status === "PENDING" && row.error_code && !row.job_id && row.next_attempt_at;
  const send = () => settle(context, decide({ title: "Send this message now", text: "Ends its backoff. It keeps its attempts and its place in its key.", confirm: "Send now", act: (who) => post(`/outbox/${row.id}/retry`, who) }), "The message is due.");
  const actions = [
    waits && may("operator") ? button("Send now", send, { picture: "retry" }) : null,
    row.status === "FAILED" && may("operator") ? retryButton(context, `/outbox/${row.id}/retry`) : null,
    row.status === "PENDING" && may("operator") ? button("Fail", fail, { kind: "quiet-danger", picture: "bad" }) : null,
  ].filter(Boolean);
  const side = [
    ["Status", status(row.status)],
    ["Message id", copyable(row.message_id)],
    ["Type", row.event_version ? `${row.event_type}, version ${row.event_version}` : row.event_type],
    ["Category", row.category],
    ["Key", copyable(row.msg_key)],
    ["Aggregate", `${row.aggregate_type} ${row.aggregate_id}`],
    ["Destination", h("a", { href: `#/outbox?destination=${encodeURIComponent(row.destination)}` }, row.destination)],
    ["Lane", count(row.lane)],
    ["Created", moment(row.created_at)],
    ["Delivered", row.dispatched_at ? moment(row.dispatched_at) : null],
    ["Next attempt", row.next_attempt_at ? ago(row.next_attempt_at) : null],
    ["Attempts", count(row.attempts)],
    ["Size", bytes(row.payload_bytes)],
    ["Bulk job", row.job_id],
    ["Caused by", trace(row.causation_id)],
    ["Correlation", trace(row.correlation_id)],
    ["Code", row.error_code],
  ];
  return h("div", { class: "page" },
    heading(row.event_type, ["Outbox row ", h("strong", null, String(row.id)), " for ", h("strong", null, row.destination)], actions),
    row.error_message ? panel("Last error", errorText(null, row.error_message)) : null,
    split(await contents("outbox", row, context.signal), side));
}
