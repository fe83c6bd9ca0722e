-- columns
relais_adopted_change.id: bigint NOT NULL IDENTITY
relais_adopted_change.adopted_by: text COLLATE "C" NOT NULL
relais_adopted_change.adopted_key: text COLLATE "C" NOT NULL
relais_adopted_change.message_id: uuid NOT NULL
relais_adopted_change.kind: text NOT NULL
relais_adopted_change.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_attempt.id: bigint NOT NULL IDENTITY
relais_attempt.origin: text NOT NULL
relais_attempt.origin_id: bigint NOT NULL
relais_attempt.attempt: integer NOT NULL
relais_attempt.at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_attempt.outcome: text NOT NULL
relais_attempt.error_code: character varying(200)
relais_attempt.error_message: character varying(2000)
relais_attempt.worker: text NOT NULL
relais_audit.id: bigint NOT NULL IDENTITY
relais_audit.at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_audit.actor: text NOT NULL
relais_audit.action: text NOT NULL
relais_audit.target: text NOT NULL
relais_audit.reason: text NOT NULL
relais_bulk_job.id: uuid NOT NULL
relais_bulk_job.destination: text COLLATE "C" NOT NULL
relais_bulk_job.remote_id: text
relais_bulk_job.phase: text NOT NULL DEFAULT 'PLANNED'::text
relais_bulk_job.row_count: bigint NOT NULL
relais_bulk_job.owner: text COLLATE "C"
relais_bulk_job.epoch: bigint NOT NULL DEFAULT 1
relais_bulk_job.lease_until: timestamp with time zone
relais_bulk_job.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_bulk_job.finished_at: timestamp with time zone
relais_bulk_job.error_message: character varying(2000)
relais_bulk_job.moved: bigint NOT NULL IDENTITY
relais_control.kind: text COLLATE "C" NOT NULL
relais_control.name: text COLLATE "C" NOT NULL
relais_control.paused_at: timestamp with time zone
relais_control.paused_by: text
relais_control.paused_reason: text
relais_control.rate_calls: integer
relais_control.rate_period_ms: bigint
relais_control.concurrency: integer
relais_control.limits_changed: bigint NOT NULL DEFAULT 0
relais_control.breaker_resets: bigint NOT NULL DEFAULT 0
relais_credential.name: text COLLATE "C" NOT NULL
relais_credential.version: bigint NOT NULL DEFAULT 0
relais_credential.sealed: text
relais_credential.owner: text COLLATE "C"
relais_credential.lease_until: timestamp with time zone
relais_dead_letter.id: uuid NOT NULL DEFAULT gen_random_uuid()
relais_dead_letter.origin: text NOT NULL
relais_dead_letter.origin_id: bigint
relais_dead_letter.message_id: text COLLATE "C" NOT NULL
relais_dead_letter.source_system: text COLLATE "C"
relais_dead_letter.destination: text COLLATE "C"
relais_dead_letter.event_type: text
relais_dead_letter.msg_key: text COLLATE "C" NOT NULL
relais_dead_letter.payload: text
relais_dead_letter.headers: text NOT NULL DEFAULT '{}'::text
relais_dead_letter.failed_status: text NOT NULL
relais_dead_letter.error_class: character varying(200)
relais_dead_letter.error_message: character varying(2000)
relais_dead_letter.attempts: integer NOT NULL DEFAULT 0
relais_dead_letter.parked_by: text NOT NULL
relais_dead_letter.parked_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_dead_letter.parks_key: boolean NOT NULL DEFAULT false
relais_dead_letter.original_payload: text
relais_dead_letter.edited_by: text
relais_dead_letter.edited_at: timestamp with time zone
relais_dead_letter.resolution: text
relais_dead_letter.resolved_by: text
relais_dead_letter.resolved_at: timestamp with time zone
relais_dead_letter.reason: text
relais_handled.message_id: text COLLATE "C" NOT NULL
relais_handled.handler: text COLLATE "C" NOT NULL
relais_handled.processed_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_inbox.id: bigint NOT NULL IDENTITY
relais_inbox.message_id: text COLLATE "C" NOT NULL
relais_inbox.source_system: text COLLATE "C" NOT NULL
relais_inbox.topic: text NOT NULL
relais_inbox.partition_num: integer NOT NULL
relais_inbox.offset_num: bigint NOT NULL
relais_inbox.key_str: text
relais_inbox.msg_key: text COLLATE "C" NOT NULL
relais_inbox.lane: smallint NOT NULL GENERATED ((hashtext(msg_key) & 63))::smallint
relais_inbox.aggregate_id: text
relais_inbox.event_type: text
relais_inbox.payload: text
relais_inbox.headers: text NOT NULL DEFAULT '{}'::text
relais_inbox.raw_payload_base64: text
relais_inbox.event_ts: timestamp with time zone
relais_inbox.received_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_inbox.status: text NOT NULL DEFAULT 'RECEIVED'::text
relais_inbox.attempts: integer NOT NULL DEFAULT 0
relais_inbox.lost_workers: smallint NOT NULL DEFAULT 0
relais_inbox.next_attempt_at: timestamp with time zone
relais_inbox.processed_at: timestamp with time zone
relais_inbox.error_stage: text
relais_inbox.error_code: character varying(200)
relais_inbox.error_message: character varying(2000)
relais_inbox.inbox: text COLLATE "C" NOT NULL GENERATED 
CASE
    WHEN (strpos(source_system, '::'::text) > 0) THEN split_part(source_system, '::'::text, 1)
    ELSE ''::text
END
relais_inbox.unknown_since: timestamp with time zone
relais_lane.scope: text COLLATE "C" NOT NULL
relais_lane.lane: smallint NOT NULL
relais_lane.owner: text COLLATE "C"
relais_lane.epoch: bigint NOT NULL DEFAULT 0
relais_lane.wanted_type: text COLLATE "C"
relais_lane.unclean: boolean NOT NULL DEFAULT false
relais_lease.worker: text COLLATE "C" NOT NULL
relais_lease.lease_until: timestamp with time zone NOT NULL
relais_lease.term: bigint NOT NULL
relais_lease.moves: bigint NOT NULL DEFAULT 0
relais_lease.handed_over: bigint NOT NULL DEFAULT 0
relais_outbox.id: bigint NOT NULL IDENTITY
relais_outbox.message_id: uuid NOT NULL DEFAULT (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid
relais_outbox.category: relais_category NOT NULL DEFAULT 'event'::text
relais_outbox.aggregate_type: text NOT NULL
relais_outbox.aggregate_id: text NOT NULL
relais_outbox.event_type: text NOT NULL
relais_outbox.event_version: integer NOT NULL DEFAULT 1
relais_outbox.payload: relais_payload NOT NULL
relais_outbox.headers: relais_headers NOT NULL DEFAULT '{}'::text
relais_outbox.destination: text COLLATE "C" NOT NULL
relais_outbox.msg_key: text COLLATE "C"
relais_outbox.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_outbox.status: text NOT NULL DEFAULT 'PENDING'::text
relais_outbox.attempts: integer NOT NULL DEFAULT 0
relais_outbox.lost_workers: smallint NOT NULL DEFAULT 0
relais_outbox.next_attempt_at: timestamp with time zone
relais_outbox.dispatched_at: timestamp with time zone
relais_outbox.job_id: text
relais_outbox.causation_id: text
relais_outbox.correlation_id: text
relais_outbox.error_code: character varying(200)
relais_outbox.error_message: character varying(2000)
relais_outbox.adopted_by: text COLLATE "C"
relais_outbox.adopted_key: text COLLATE "C"
relais_outbox_position.destination: text COLLATE "C" NOT NULL
relais_outbox_position.position: bigint NOT NULL
relais_parked_key.origin: text NOT NULL
relais_parked_key.destination: text COLLATE "C" NOT NULL DEFAULT ''::text
relais_parked_key.msg_key: text COLLATE "C" NOT NULL
relais_parked_key.key_hash: text COLLATE "C" NOT NULL GENERATED md5(msg_key)
relais_parked_key.dead_letter_id: uuid NOT NULL
relais_parked_key.parked_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process.process_id: uuid NOT NULL
relais_process.process_type: text COLLATE "C" NOT NULL
relais_process.definition: integer NOT NULL
relais_process.business_key: text COLLATE "C"
relais_process.status: text NOT NULL
relais_process.current_step: text
relais_process.data: text NOT NULL
relais_process.retries: integer NOT NULL DEFAULT 0
relais_process.progress: text NOT NULL DEFAULT '{}'::text
relais_process.version: bigint NOT NULL
relais_process.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process.updated_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process_log.process_id: uuid NOT NULL
relais_process_log.seq: bigint NOT NULL
relais_process_log.at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process_log.event_type: text NOT NULL
relais_process_log.event: text NOT NULL
relais_process_log.message_id: text COLLATE "C"
relais_report.worker: text COLLATE "C" NOT NULL
relais_report.host: text NOT NULL
relais_report.pid: bigint NOT NULL
relais_report.version: text NOT NULL
relais_report.started_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_report.reported_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_report.figures: text NOT NULL
relais_schema.version: bigint NOT NULL
relais_schema.name: text NOT NULL
relais_schema.needs: bigint NOT NULL
relais_schema.checksum: text NOT NULL
relais_schema.applied_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_source_position.source: text COLLATE "C" NOT NULL
relais_source_position.partition_key: text COLLATE "C" NOT NULL
relais_source_position.position: bigint NOT NULL
relais_source_position.updated_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_timer.process_id: uuid NOT NULL
relais_timer.step: text NOT NULL
relais_timer.command_id: uuid NOT NULL
relais_timer.after_ms: bigint NOT NULL
relais_timer.due_at: timestamp with time zone NOT NULL
relais_version.aggregate_type: text COLLATE "C" NOT NULL
relais_version.aggregate_id: text COLLATE "C" NOT NULL
relais_version.version: bigint NOT NULL
relais_waiting.id: bigint NOT NULL
relais_waiting.destination: text COLLATE "C" NOT NULL
relais_waiting.msg_key: text COLLATE "C" NOT NULL
relais_waiting.due_at: timestamp with time zone
relais_waiting.holds_key: boolean NOT NULL
relais_waiting.job_id: text
relais_worker.scope: text COLLATE "C" NOT NULL
relais_worker.worker: text COLLATE "C" NOT NULL
relais_worker.event_types: text[] COLLATE "C"
-- constraints
relais_adopted_change.relais_adopted_change_kind_check: CHECK ((kind = ANY (ARRAY['reset'::text, 'unwritten'::text])))
relais_adopted_change.relais_adopted_change_pkey: PRIMARY KEY (id)
relais_attempt.relais_attempt_origin_check: CHECK ((origin = ANY (ARRAY['inbox'::text, 'outbox'::text])))
relais_attempt.relais_attempt_outcome_check: CHECK ((outcome = ANY (ARRAY['retry'::text, 'failed'::text, 'ignored'::text, 'delivered'::text])))
relais_attempt.relais_attempt_pkey: PRIMARY KEY (origin, origin_id, id)
relais_audit.relais_audit_pkey: PRIMARY KEY (id)
relais_bulk_job.relais_bulk_job_destination_check: CHECK ((destination <> ''::text))
relais_bulk_job.relais_bulk_job_end: CHECK (((finished_at IS NOT NULL) = (phase = ANY (ARRAY['RECONCILED'::text, 'ABANDONED'::text]))))
relais_bulk_job.relais_bulk_job_phase: CHECK ((phase = ANY (ARRAY['PLANNED'::text, 'CREATING'::text, 'CREATED'::text, 'UPLOADING'::text, 'UPLOADED'::text, 'CLOSING'::text, 'CLOSED'::text, 'FINISHED'::text, 'RECONCILED'::text, 'ABANDONED'::text])))
relais_bulk_job.relais_bulk_job_pkey: PRIMARY KEY (id)
relais_control.relais_control_concurrency_check: CHECK ((concurrency > 0))
relais_control.relais_control_kind_check: CHECK ((kind = ANY (ARRAY['destination'::text, 'source'::text, 'process_type'::text])))
relais_control.relais_control_name_check: CHECK ((name <> ''::text))
relais_control.relais_control_pkey: PRIMARY KEY (kind, name)
relais_control.relais_control_rate_calls_check: CHECK ((rate_calls > 0))
relais_control.relais_control_rate_period_ms_check: CHECK ((rate_period_ms > 0))
relais_credential.relais_credential_pkey: PRIMARY KEY (name)
relais_dead_letter.relais_dead_letter_check: CHECK (((origin = 'process'::text) = (origin_id IS NULL)))
relais_dead_letter.relais_dead_letter_origin_check: CHECK ((origin = ANY (ARRAY['inbox'::text, 'outbox'::text, 'process'::text])))
relais_dead_letter.relais_dead_letter_pkey: PRIMARY KEY (id)
relais_dead_letter.relais_dead_letter_resolution_check: CHECK ((resolution = ANY (ARRAY['retried'::text, 'discarded'::text, 'resumed'::text, 'skipped'::text, 'compensated'::text, 'cancelled'::text, 'answered'::text])))
relais_handled.relais_handled_handler_check: CHECK ((handler <> ''::text))
relais_handled.relais_handled_message_id_check: CHECK ((message_id <> ''::text))
relais_handled.relais_handled_pkey: PRIMARY KEY (message_id, handler)
relais_inbox.relais_inbox_attempts_check: CHECK (((attempts >= 0) AND (attempts < 1000000)))
relais_inbox.relais_inbox_dedupe: UNIQUE (source_system, message_id)
relais_inbox.relais_inbox_error_stage_check: CHECK ((error_stage = ANY (ARRAY['CONSUMER_SERDE'::text, 'BUSINESS'::text])))
relais_inbox.relais_inbox_id_check: CHECK ((id > 0))
relais_inbox.relais_inbox_message_id_check: CHECK ((message_id <> ''::text))
relais_inbox.relais_inbox_payload_or_raw: CHECK (((payload IS NOT NULL) OR (raw_payload_base64 IS NOT NULL)))
relais_inbox.relais_inbox_pkey: PRIMARY KEY (id)
relais_inbox.relais_inbox_source_system_check: CHECK ((source_system <> ''::text))
relais_inbox.relais_inbox_status: CHECK ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text, 'FAILED'::text, 'PROCESSED'::text, 'SERDE_ERROR'::text])))
relais_lane.relais_lane_lane_check: CHECK (((lane >= 0) AND (lane <= 63)))
relais_lane.relais_lane_pkey: PRIMARY KEY (scope, lane)
relais_lease.relais_lease_pkey: PRIMARY KEY (worker)
relais_outbox.relais_outbox_message: UNIQUE (message_id, destination)
relais_outbox.relais_outbox_pkey: PRIMARY KEY (id)
relais_outbox_position.relais_outbox_position_pkey: PRIMARY KEY (destination)
relais_parked_key.relais_parked_key_dead_letter_id_fkey: FOREIGN KEY (dead_letter_id) REFERENCES relais_dead_letter(id)
relais_parked_key.relais_parked_key_origin_check: CHECK ((origin = ANY (ARRAY['inbox'::text, 'outbox'::text])))
relais_parked_key.relais_parked_key_pkey: PRIMARY KEY (origin, destination, key_hash)
relais_process.relais_process_pkey: PRIMARY KEY (process_id)
relais_process.relais_process_process_type_check: CHECK ((process_type <> ''::text))
relais_process.relais_process_retries_check: CHECK ((retries >= 0))
relais_process.relais_process_status: CHECK ((status = ANY (ARRAY['NEW'::text, 'RUNNING'::text, 'SUCCEEDED'::text, 'FAILED'::text, 'COMPENSATING'::text, 'COMPENSATED'::text, 'PAUSED'::text])))
relais_process.relais_process_version_check: CHECK ((version > 0))
relais_process_log.relais_process_log_pkey: PRIMARY KEY (process_id, seq)
relais_report.relais_report_pkey: PRIMARY KEY (worker)
relais_schema.relais_schema_pkey: PRIMARY KEY (version)
relais_source_position.relais_source_position_pkey: PRIMARY KEY (source, partition_key)
relais_timer.relais_timer_pkey: PRIMARY KEY (process_id)
relais_version.relais_version_pkey: PRIMARY KEY (aggregate_type, aggregate_id)
relais_waiting.relais_waiting_pkey: PRIMARY KEY (id)
relais_worker.relais_worker_pkey: PRIMARY KEY (scope, worker)
-- indexes
relais_adopted_change.relais_adopted_change_pkey: CREATE UNIQUE INDEX relais_adopted_change_pkey ON relais_adopted_change USING btree (id)
relais_attempt.relais_attempt_pkey: CREATE UNIQUE INDEX relais_attempt_pkey ON relais_attempt USING btree (origin, origin_id, id)
relais_audit.relais_audit_actor: CREATE INDEX relais_audit_actor ON relais_audit USING btree (actor, id)
relais_audit.relais_audit_pkey: CREATE UNIQUE INDEX relais_audit_pkey ON relais_audit USING btree (id)
relais_audit.relais_audit_target: CREATE INDEX relais_audit_target ON relais_audit USING btree (target, id)
relais_bulk_job.relais_bulk_job_age: CREATE INDEX relais_bulk_job_age ON relais_bulk_job USING btree (finished_at) WHERE (finished_at IS NOT NULL)
relais_bulk_job.relais_bulk_job_open: CREATE UNIQUE INDEX relais_bulk_job_open ON relais_bulk_job USING btree (destination) WHERE (finished_at IS NULL)
relais_bulk_job.relais_bulk_job_pkey: CREATE UNIQUE INDEX relais_bulk_job_pkey ON relais_bulk_job USING btree (id)
relais_control.relais_control_pkey: CREATE UNIQUE INDEX relais_control_pkey ON relais_control USING btree (kind, name)
relais_credential.relais_credential_pkey: CREATE UNIQUE INDEX relais_credential_pkey ON relais_credential USING btree (name)
relais_dead_letter.relais_dead_letter_age: CREATE INDEX relais_dead_letter_age ON relais_dead_letter USING btree (parked_at, id)
relais_dead_letter.relais_dead_letter_key: CREATE INDEX relais_dead_letter_key ON relais_dead_letter USING btree (hashtextextended(msg_key, (0)::bigint)) WHERE (resolved_at IS NULL)
relais_dead_letter.relais_dead_letter_message: CREATE INDEX relais_dead_letter_message ON relais_dead_letter USING btree (hashtextextended(message_id, (0)::bigint))
relais_dead_letter.relais_dead_letter_open: CREATE INDEX relais_dead_letter_open ON relais_dead_letter USING btree (parked_at, id) WHERE (resolved_at IS NULL)
relais_dead_letter.relais_dead_letter_origin: CREATE INDEX relais_dead_letter_origin ON relais_dead_letter USING btree (origin, origin_id)
relais_dead_letter.relais_dead_letter_pkey: CREATE UNIQUE INDEX relais_dead_letter_pkey ON relais_dead_letter USING btree (id)
relais_dead_letter.relais_dead_letter_process: CREATE UNIQUE INDEX relais_dead_letter_process ON relais_dead_letter USING btree (message_id) WHERE ((origin = 'process'::text) AND (resolved_at IS NULL))
relais_handled.relais_handled_age: CREATE INDEX relais_handled_age ON relais_handled USING btree (processed_at)
relais_handled.relais_handled_pkey: CREATE UNIQUE INDEX relais_handled_pkey ON relais_handled USING btree (message_id, handler)
relais_inbox.relais_inbox_dedupe: CREATE UNIQUE INDEX relais_inbox_dedupe ON relais_inbox USING btree (source_system, message_id)
relais_inbox.relais_inbox_due: CREATE INDEX relais_inbox_due ON relais_inbox USING btree (next_attempt_at) WHERE ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text])) AND (next_attempt_at IS NOT NULL))
relais_inbox.relais_inbox_fresh: CREATE INDEX relais_inbox_fresh ON relais_inbox USING btree (((id + 0))) WHERE ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text])) AND (next_attempt_at IS NULL))
relais_inbox.relais_inbox_held: CREATE INDEX relais_inbox_held ON relais_inbox USING btree (hashtextextended(msg_key, (0)::bigint), ((id + 0))) WHERE ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text])) AND (next_attempt_at IS NOT NULL))
relais_inbox.relais_inbox_pkey: CREATE UNIQUE INDEX relais_inbox_pkey ON relais_inbox USING btree (id)
relais_inbox.relais_inbox_trouble: CREATE INDEX relais_inbox_trouble ON relais_inbox USING btree (status, id) WHERE (status = ANY (ARRAY['FAILED'::text, 'SERDE_ERROR'::text, 'RETRY'::text]))
relais_lane.relais_lane_pkey: CREATE UNIQUE INDEX relais_lane_pkey ON relais_lane USING btree (scope, lane)
relais_lease.relais_lease_pkey: CREATE UNIQUE INDEX relais_lease_pkey ON relais_lease USING btree (worker)
relais_outbox.relais_outbox_cause: CREATE INDEX relais_outbox_cause ON relais_outbox USING hash (causation_id)
relais_outbox.relais_outbox_destination: CREATE INDEX relais_outbox_destination ON relais_outbox USING btree (destination, id)
relais_outbox.relais_outbox_message: CREATE UNIQUE INDEX relais_outbox_message ON relais_outbox USING btree (message_id, destination)
relais_outbox.relais_outbox_pkey: CREATE UNIQUE INDEX relais_outbox_pkey ON relais_outbox USING btree (id)
relais_outbox_position.relais_outbox_position_pkey: CREATE UNIQUE INDEX relais_outbox_position_pkey ON relais_outbox_position USING btree (destination)
relais_parked_key.relais_parked_key_age: CREATE INDEX relais_parked_key_age ON relais_parked_key USING btree (parked_at, key_hash)
relais_parked_key.relais_parked_key_dead_letter: CREATE INDEX relais_parked_key_dead_letter ON relais_parked_key USING btree (dead_letter_id)
relais_parked_key.relais_parked_key_pkey: CREATE UNIQUE INDEX relais_parked_key_pkey ON relais_parked_key USING btree (origin, destination, key_hash)
relais_process.relais_process_age: CREATE INDEX relais_process_age ON relais_process USING btree (created_at, process_id)
relais_process.relais_process_key: CREATE UNIQUE INDEX relais_process_key ON relais_process USING btree (((md5(business_key))::uuid), process_type) WHERE (business_key IS NOT NULL)
relais_process.relais_process_pkey: CREATE UNIQUE INDEX relais_process_pkey ON relais_process USING btree (process_id)
relais_process.relais_process_state: CREATE INDEX relais_process_state ON relais_process USING btree (status, created_at, process_id) WHERE (status <> 'SUCCEEDED'::text)
relais_process.relais_process_type: CREATE INDEX relais_process_type ON relais_process USING btree (process_type, created_at, process_id)
relais_process_log.relais_process_log_message: CREATE INDEX relais_process_log_message ON relais_process_log USING btree (hashtextextended(message_id, (0)::bigint)) WHERE (message_id IS NOT NULL)
relais_process_log.relais_process_log_pkey: CREATE UNIQUE INDEX relais_process_log_pkey ON relais_process_log USING btree (process_id, seq)
relais_report.relais_report_pkey: CREATE UNIQUE INDEX relais_report_pkey ON relais_report USING btree (worker)
relais_schema.relais_schema_pkey: CREATE UNIQUE INDEX relais_schema_pkey ON relais_schema USING btree (version)
relais_source_position.relais_source_position_pkey: CREATE UNIQUE INDEX relais_source_position_pkey ON relais_source_position USING btree (source, partition_key)
relais_timer.relais_timer_due: CREATE INDEX relais_timer_due ON relais_timer USING btree (due_at)
relais_timer.relais_timer_pkey: CREATE UNIQUE INDEX relais_timer_pkey ON relais_timer USING btree (process_id)
relais_version.relais_version_pkey: CREATE UNIQUE INDEX relais_version_pkey ON relais_version USING btree (aggregate_type, aggregate_id)
relais_waiting.relais_waiting_due: CREATE INDEX relais_waiting_due ON relais_waiting USING btree (destination, due_at) WHERE (due_at IS NOT NULL)
relais_waiting.relais_waiting_job: CREATE INDEX relais_waiting_job ON relais_waiting USING btree (job_id, ((id + 0))) WHERE (job_id IS NOT NULL)
relais_waiting.relais_waiting_key: CREATE INDEX relais_waiting_key ON relais_waiting USING btree (destination, hashtextextended(msg_key, (0)::bigint), ((id + 0)))
relais_waiting.relais_waiting_pkey: CREATE UNIQUE INDEX relais_waiting_pkey ON relais_waiting USING btree (id)
relais_worker.relais_worker_pkey: CREATE UNIQUE INDEX relais_worker_pkey ON relais_worker USING btree (scope, worker)
-- triggers
relais_inbox.relais_inbox_json: CREATE TRIGGER relais_inbox_json AFTER INSERT OR UPDATE OF payload, headers ON relais_inbox FOR EACH ROW WHEN (((((new.payload)::json IS NULL) <> (new.payload IS NULL)) OR (json_typeof((new.headers)::json) IS DISTINCT FROM 'object'::text))) EXECUTE FUNCTION relais_refuse()
-- functions
function.relais_refuse: BEGIN RAISE EXCEPTION USING ERRCODE = 'check_violation',
        MESSAGE = 'cannot store the row: headers must be a JSON object, as in {"tenant":"a"}'; END
function.relais_refuse_id: BEGIN
    RAISE EXCEPTION USING ERRCODE = 'unique_violation', MESSAGE = format(
        'cannot send %s: message id %s belongs to another message of destination %s; use another id',
        event_type, message_id, destination);
END
